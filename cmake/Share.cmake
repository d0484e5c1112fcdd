# elinvar_install_share(<options of install()>): installs the ready configurations to share/elinvar/configs, where programs
# look for them (tools/config/ready_configs.h), and the documents to share/doc/elinvar, in the folders of the source tree,
# so that links between them work.
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

# Programs in a build tree find the configurations by the same relative path.
file(MAKE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/../share/elinvar)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models/configs ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/../share/elinvar/configs SYMBOLIC)
