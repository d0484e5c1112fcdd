# The differences between the kinds of bundle (Bundle.cmake); cpack reads this file for each kind.
set(CPACK_COMPONENTS_ALL bundle)
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /opt/elinvar)
else()
  list(APPEND CPACK_COMPONENTS_ALL tests)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)  # everything in one folder, named like the file
endif()
