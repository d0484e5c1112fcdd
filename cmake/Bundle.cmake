# `cpack` in the build folder makes bundles for machines without the packages that the project is built from:
#   elinvar-VERSION-Linux-x86_64.tar.gz   unpack anywhere; includes the tests, for a machine with a GPU (bin/gpu-check)
#   elinvar_VERSION_amd64.deb             installs to /opt/elinvar, without the tests; depends on libc6 alone
# bin/ has the programs, lib/ the shared libraries that their RPATH leads to. Not included are the C library, which
# belongs to the system, and NVIDIA's: the CUDA runtime is linked statically, and libcuda comes with the driver.
set(bundled train repro pool bench tokenize)
get_property(bundled_tests GLOBAL PROPERTY ELINVAR_GPU_TESTS)  # tests of GPUs

if(ELINVAR_BUILD_TOOLS)
  install(PROGRAMS tools/gpu-check DESTINATION bin COMPONENT bundle EXCLUDE_FROM_ALL)
  install(DIRECTORY tools/gpu_check DESTINATION bin COMPONENT bundle EXCLUDE_FROM_ALL FILES_MATCHING PATTERN *.py)
  install(PROGRAMS tools/peers/torch_steps.py DESTINATION bin/peers COMPONENT bundle EXCLUDE_FROM_ALL)
  install(DIRECTORY tools/peers/torch_networks DESTINATION bin/peers COMPONENT bundle EXCLUDE_FROM_ALL
          FILES_MATCHING PATTERN *.py)
  elinvar_install_share(COMPONENT bundle EXCLUDE_FROM_ALL)
  install(TARGETS ${bundled} RUNTIME DESTINATION bin COMPONENT bundle EXCLUDE_FROM_ALL)
  set(programs ${bundled})
  if(ELINVAR_BUILD_TESTS)
    install(TARGETS ${bundled_tests} RUNTIME DESTINATION bin COMPONENT tests EXCLUDE_FROM_ALL)
    list(APPEND programs ${bundled_tests})
  endif()
  # RPATH, not RUNPATH: it also applies to the libraries' own dependencies, and LD_LIBRARY_PATH cannot override it.
  foreach(program ${programs})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
  endforeach()

  set(executables "")
  foreach(program ${bundled})
    string(APPEND executables " \"$<TARGET_FILE:${program}>\"")
  endforeach()
  install(CODE "set(executables ${executables})" COMPONENT bundle EXCLUDE_FROM_ALL)
  install(CODE [[
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${executables} RESOLVED_DEPENDENCIES_VAR libraries
         PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv)\\.so" "^lib(cuda|nvidia|nccl|cublas|cudnn)")
    file(INSTALL ${libraries} DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" FOLLOW_SYMLINK_CHAIN)
  ]] COMPONENT bundle EXCLUDE_FROM_ALL)
  # The commit, which results of bin/gpu-check name.
  install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")\nset(build \"${PROJECT_BINARY_DIR}\")"
          COMPONENT bundle EXCLUDE_FROM_ALL)
  install(CODE [[
    execute_process(COMMAND git -C ${source} rev-parse HEAD OUTPUT_VARIABLE commit ERROR_QUIET)
    file(WRITE ${build}/commit "${commit}")
    file(INSTALL ${build}/commit DESTINATION "${CMAKE_INSTALL_PREFIX}/share/elinvar")
  ]] COMPONENT bundle EXCLUDE_FROM_ALL)
endif()

execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE libc OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
string(REGEX MATCH "[0-9.]+" libc "${libc}")
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME elinvar)
set(CPACK_PACKAGE_CONTACT "the authors of Elinvar")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_FILE_NAME elinvar-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${libc})")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/BundleKinds.cmake)
include(CPack)
