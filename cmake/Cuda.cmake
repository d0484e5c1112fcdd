# Decides whether kernels are compiled for CUDA, and for which architectures. A binary built with CUDA runs on a machine
# without a driver: the runtime is linked statically, and looks for the driver when a GPU is requested.
set(elinvar_cuda OFF)
if(NOT ELINVAR_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "Architectures that kernels are compiled for")
    endif()
    foreach(architecture ${CMAKE_CUDA_ARCHITECTURES})
      if(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 80)
        message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=${CMAKE_CUDA_ARCHITECTURES}: the kernels need 80 (A100) or "
                            "newer, which multiply bfloat16")
      endif()
    endforeach()
    enable_language(CUDA)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    # CMake 3.25 does not know that nvcc supports C++20.
    foreach(form STANDARD EXTENSION)
      if(NOT CMAKE_CUDA20_${form}_COMPILE_OPTION)
        set(CMAKE_CUDA20_${form}_COMPILE_OPTION -std=c++20)
      endif()
    endforeach()
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    set(elinvar_cuda ON)
  elseif(ELINVAR_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ELINVAR_CUDA=ON, but no CUDA compiler was found: put nvcc on the PATH or set CUDACXX")
  endif()
endif()
message(STATUS "CUDA kernels: ${elinvar_cuda}")

# Flags for reproducible results on a GPU: one rounding per operation, subnormals, and IEEE division and square root.
set(ELINVAR_CUDA_FLAGS -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
                       --extended-lambda)
# Compresses the kernels, which every program contains. CUDA 12.8 could, too, but its output needs a newer driver than
# the rest.
if(elinvar_cuda AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
  list(APPEND ELINVAR_CUDA_FLAGS --compress-mode=size)
endif()
