# elinvar_use_eigen(<target>): the target's sources may include Eigen (Debian: libeigen3-dev), which is headers alone.
# Everywhere in the project it computes in scalar code of one thread: its vectorized code has other bits on other
# machines, and a function that two sources compiled differently would be linked from either.
find_package(Eigen3 REQUIRED NO_MODULE)
function(elinvar_use_eigen target)
  target_include_directories(${target} SYSTEM PRIVATE $<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(${target} PRIVATE EIGEN_DONT_VECTORIZE EIGEN_DONT_PARALLELIZE)
endfunction()
