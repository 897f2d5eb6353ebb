# What every target of pyxfer is compiled with.
add_library(pyxfer_options INTERFACE)
target_include_directories(pyxfer_options INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}/csrc")
target_compile_options(pyxfer_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  $<$<BOOL:${PYXFER_WERROR}>:-Werror>
  # __FILE__ is shown in errors: from the root of the project, not from where it was built.
  "-fmacro-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=")

# What the two modules are linked with besides. The C++ library goes in, so that a wheel needs no newer one than the
# machine of its Python has. libgcc does not: since GCC 12 its static unwinder wants glibc 2.35 (_dl_find_object), and
# NumPy needs the shared one anyway. Nothing but the modules' entry points can be seen from outside, not even the
# templates of the C++ library, which bear default visibility whatever the compiler is told. What nobody calls is left
# out: the library's std::random_device alone would want glibc 2.36 (arc4random).
set(exported_names "${CMAKE_CURRENT_LIST_DIR}/exported.map")
add_library(pyxfer_module_options INTERFACE)
if(PYXFER_SANITIZE)
  target_compile_options(pyxfer_options INTERFACE
    "-fsanitize=${PYXFER_SANITIZE}" -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(pyxfer_options INTERFACE "-fsanitize=${PYXFER_SANITIZE}")
else()
  target_link_options(pyxfer_module_options INTERFACE
    -static-libstdc++ -Wl,--as-needed -Wl,--gc-sections "-Wl,--version-script=${exported_names}")
  set_property(TARGET pyxfer_module_options PROPERTY INTERFACE_LINK_DEPENDS "${exported_names}")
endif()
