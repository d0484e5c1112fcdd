# `cmake --install` installs the tools, configurations and documents. For other projects it installs headers, libraries
# and a CMake package:
#   find_package(elinvar REQUIRED)                       # COMPONENTS cuda requires the libraries with CUDA
#   target_link_libraries(app PRIVATE elinvar::models)    # or elinvar::launch, for a program that trains elastically
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY ELINVAR_LAYERS)
get_property(host_layers GLOBAL PROPERTY ELINVAR_HOST_LAYERS)  # none if the build has no GPUs
get_property(libraries GLOBAL PROPERTY ELINVAR_TOOLS_LIBRARIES)
list(TRANSFORM libraries PREPEND elinvar_)
install(TARGETS ${layers} ${host_layers} ${libraries} EXPORT elinvar ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT elinvar NAMESPACE elinvar:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/elinvar FILE elinvarTargets.cmake)
configure_package_config_file(cmake/elinvarConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/elinvarConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/elinvar)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/elinvarConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/elinvarConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/elinvarConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/elinvar)
if(ELINVAR_BUILD_TOOLS)  # the tools use these
  include(cmake/Share.cmake)
  elinvar_install_share()
  install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/elinvar)
endif()
