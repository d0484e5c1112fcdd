# cmake -DBUILD=<build tree> -DGENERATOR=<name> -DFLAGS=<compiler flags> -P run.cmake
# Installs the build tree to a prefix of its own, then configures, builds and runs the example against it.
set(work ${BUILD}/tests/package)
file(REMOVE_RECURSE ${work})
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
step(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
     -DCMAKE_PREFIX_PATH=${work}/prefix -DCMAKE_CXX_FLAGS=${FLAGS})
step(${CMAKE_COMMAND} --build ${work}/build)
execute_process(COMMAND ${work}/build/example COMMAND_ERROR_IS_FATAL ANY)
