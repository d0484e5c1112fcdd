# elinvar_use_eigen(<target>): lets the target's sources include Eigen (Debian: libeigen3-dev), which is header-only.
# Throughout the project Eigen computes in scalar code with one thread: vectorized code has other bits on other
# machines, and if two sources compiled a function differently, the linker would choose either.
find_package(Eigen3 REQUIRED NO_MODULE)
function(elinvar_use_eigen target)
  target_include_directories(${target} SYSTEM PRIVATE $<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(${target} PRIVATE EIGEN_DONT_VECTORIZE EIGEN_DONT_PARALLELIZE)
endfunction()
