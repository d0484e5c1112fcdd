# cmake -DNM=<nm> -DDEVICE=<Cuda or Emulated> -DOBJECTS=<object files> -DTO=<file> -P absent_kernels.cmake
# Writes a C++ source that defines the kernels of a kind of GPU that the build leaves out: the functions of GpuStream<DEVICE>
# that the object files call and none defines. They cannot be reached, because gpu_stream() (absent_device.h) refuses before.
# With them, all other sources compile to the same objects, whichever devices a build has.
execute_process(COMMAND ${NM} --format=posix ${OBJECTS} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_ZN7elinvar[^\n ]*NS_[0-9]+${DEVICE}E[^\n ]* U" missing "${symbols}")
string(REGEX MATCHALL "_ZN7elinvar[^\n ]*NS_[0-9]+${DEVICE}E[^\n ]* [TWV]" defined "${symbols}")
list(TRANSFORM missing REPLACE " U$" "")
list(TRANSFORM defined REPLACE " .$" "")
list(REMOVE_DUPLICATES missing)
list(REMOVE_ITEM missing "" ${defined})
set(text "#include <cstdlib>\n\nextern \"C\" {\n")
foreach(symbol ${missing})
  string(APPEND text "[[noreturn]] void ${symbol}() { std::abort(); }\n")
endforeach()
file(WRITE ${TO} "${text}}\n")
