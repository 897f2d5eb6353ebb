# pip gives each isolated build a new temporary folder. Copies of the headers under build/ have the same path in every
# build of this checkout, so that a compiler cache recognises what it has compiled.
function(pyxfer_keep name version)
  set(kept "${PROJECT_SOURCE_DIR}/build/kept/${name}-${version}")
  if(NOT EXISTS "${kept}")
    string(RANDOM unique)
    file(COPY ${ARGN} DESTINATION "${kept}.${unique}")
    # Another build of this checkout may have been first.
    file(RENAME "${kept}.${unique}" "${kept}" RESULT ignored)
    file(REMOVE_RECURSE "${kept}.${unique}")
  endif()
  set(kept_${name} "${kept}" PARENT_SCOPE)
endfunction()
