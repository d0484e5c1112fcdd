# What programs find beside them: configurations in share/elinvar/configs (tools/config/ready_configs.h), and documents in
# share/doc/elinvar, in the folders that links between them expect.
#
# elinvar_install_share(<options of install()>)
function(elinvar_install_share)
  install(DIRECTORY models/configs DESTINATION share/elinvar ${ARGN})
  set(patterns README.md tools/docs/*.md tools/docs/*.svg)
  foreach(folder tensor models elastic tools tools/* examples)
    list(APPEND patterns ${folder}/*.md)
  endforeach()
  file(GLOB documents RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${patterns})
  list(REMOVE_DUPLICATES documents)
  foreach(document ${documents})
    get_filename_component(folder ${document} DIRECTORY)
    install(FILES ${document} DESTINATION share/doc/elinvar/${folder} ${ARGN})
  endforeach()
endfunction()

# A build tree has the same path to the configurations.
file(MAKE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/../share/elinvar)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models/configs ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/../share/elinvar/configs SYMBOLIC)
