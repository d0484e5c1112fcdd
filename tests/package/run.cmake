# cmake -DBUILD=<build tree> -DGENERATOR=<name> -DFLAGS=<compiler flags> -P run.cmake
# Installs the build tree to a separate prefix, then configures and builds the installed examples against it as another
# project, and runs them.
set(work ${BUILD}/tests/package)
file(REMOVE_RECURSE ${work})
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)

# No installed header may include another one by its path in the sources.
file(GLOB_RECURSE headers ${work}/prefix/include/elinvar/*.h)
foreach(header ${headers})
  file(STRINGS ${header} wrong REGEX "#include \"(tensor|autograd|nn|data|comm|elastic|models|tools)/")
  if(wrong)
    message(FATAL_ERROR "${header} has ${wrong}")
  endif()
endforeach()

# The installed program finds its configurations, and names its documents.
step(${work}/prefix/bin/train configs mlp_mnist ${work}/mlp.toml)
step(${work}/prefix/bin/train --help)
if(NOT output MATCHES "Documents: .*/share/doc/elinvar/README.md")
  message(FATAL_ERROR "train --help names no documents: ${output}")
endif()
foreach(document README.md tools/docs/train.md tools/CONFIG.md elastic/PROTOCOL.md)
  if(NOT EXISTS ${work}/prefix/share/doc/elinvar/${document})
    message(FATAL_ERROR "${document} is not installed")
  endif()
endforeach()

set(examples ${work}/prefix/share/elinvar/examples)
step(${CMAKE_COMMAND} -S ${examples} -B ${work}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
     -DCMAKE_PREFIX_PATH=${work}/prefix -DCMAKE_CXX_FLAGS=${FLAGS})
step(${CMAKE_COMMAND} --build ${work}/build)
step(${work}/build/tape)
step(${work}/build/own_network)
foreach(workers 1 2)
  step(${work}/build/elastic_job run ${examples}/elastic_job.toml --run-dir ${work}/run-${workers} --workers ${workers}
       --threads 1)
endforeach()
step(${work}/build/compare_ledgers ${work}/run-1 ${work}/run-2)

# Where no CUDA toolkit and no Boost are installed, the package of a build with GPUs has libraries without them, unless a
# project asks for them.
set(hidden -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON)
step(${CMAKE_COMMAND} -S ${examples} -B ${work}/host -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
     -DCMAKE_PREFIX_PATH=${work}/prefix -DCMAKE_CXX_FLAGS=${FLAGS} ${hidden})
step(${CMAKE_COMMAND} --build ${work}/host --target tape elastic_job)
step(${work}/host/tape)
step(${work}/host/elastic_job run ${examples}/elastic_job.toml --run-dir ${work}/run-host --workers 2 --threads 1)
step(${work}/build/compare_ledgers ${work}/run-1 ${work}/run-host)
step(${CMAKE_COMMAND} -E env ldd ${work}/host/tape)
if(output MATCHES "libboost|libcud")
  message(FATAL_ERROR "tape needs libraries of GPUs: ${output}")
endif()

file(WRITE ${work}/cuda/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(needs_cuda LANGUAGES CXX)
find_package(elinvar REQUIRED COMPONENTS cuda)
")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${work}/cuda -B ${work}/cuda/build -G ${GENERATOR}
                        -DCMAKE_PREFIX_PATH=${work}/prefix ${hidden}
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0 OR NOT output MATCHES "was built without CUDA|component cuda needs")
  message(FATAL_ERROR "find_package(elinvar COMPONENTS cuda) does not say what it lacks: ${output}")
endif()
