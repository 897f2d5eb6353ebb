# pip uses a new temporary folder for each isolated build. Copies of the headers under build/ have the same path in
# every build of this checkout, so that a compiler cache recognises the sources.
function(pyxfer_keep name version)
  set(kept "${PROJECT_SOURCE_DIR}/build/kept/${name}-${version}")
  if(NOT EXISTS "${kept}")
    string(RANDOM unique)
    file(COPY ${ARGN} DESTINATION "${kept}.${unique}")
    # This fails if another build of this checkout has just made the folder.
    file(RENAME "${kept}.${unique}" "${kept}" RESULT ignored)
    file(REMOVE_RECURSE "${kept}.${unique}")
  endif()
  set(kept_${name} "${kept}" PARENT_SCOPE)
endfunction()
