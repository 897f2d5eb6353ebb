# cuda_runtime_api.h and libcudart_static.a come from NVIDIA's wheels among the build requirements (12.9, which works
# with every driver from 525 on), or with PYXFER_USE_TOOLKIT from the machine's toolkit. nvcc is not needed.
add_library(pyxfer_cuda_headers INTERFACE)
add_library(pyxfer_cudart INTERFACE)

if(PYXFER_USE_TOOLKIT)
  find_package(CUDAToolkit 12.9 REQUIRED)
  set(cuda_include_dirs ${CUDAToolkit_INCLUDE_DIRS})
  set(cudart_archive "${CUDA_cudart_static_LIBRARY}")
else()
  set(ask_wheels [[
import importlib.metadata as metadata
runtime = metadata.distribution("nvidia-cuda-runtime-cu12")
compiler = metadata.distribution("nvidia-cuda-nvcc-cu12")
paths = [
    runtime.locate_file("nvidia/cuda_runtime/include"),
    compiler.locate_file("nvidia/cuda_nvcc/include"),
    runtime.locate_file("nvidia/cuda_runtime/lib/libcudart_static.a"),
]
print(runtime.version, *paths, sep=";", end="")
]])
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "${ask_wheels}"
    OUTPUT_VARIABLE found_paths RESULT_VARIABLE status ERROR_VARIABLE fault)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "The wheels nvidia-cuda-runtime-cu12 and nvidia-cuda-nvcc-cu12 (12.9) were not found for "
      "${Python_EXECUTABLE}. Install them, or set PYXFER_USE_TOOLKIT=1 to use the machine's CUDA toolkit.\n${fault}")
  endif()
  list(POP_FRONT found_paths cuda_version)
  pyxfer_keep(cuda "${cuda_version}" ${found_paths})
  set(cuda_include_dirs "${kept_cuda}/include")
  set(cudart_archive "${kept_cuda}/libcudart_static.a")
endif()

if(NOT EXISTS "${cudart_archive}")
  message(FATAL_ERROR "No libcudart_static.a at \"${cudart_archive}\"")
endif()
message(STATUS "pyxfer: cudart from ${cudart_archive}")
target_include_directories(pyxfer_cuda_headers SYSTEM INTERFACE ${cuda_include_dirs})
target_link_libraries(pyxfer_cudart INTERFACE "${cudart_archive}" Threads::Threads ${CMAKE_DL_LIBS} rt)
