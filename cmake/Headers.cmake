# Headers for other projects, which include them as "elinvar/tensor/tensor.h". The sources include each other from the
# root of the tree, "tensor/tensor.h"; the paths in headers are rewritten when they are installed.
#
# For examples/ in the build tree, build/include/elinvar/<folder> is a link to the folder.
set(ELINVAR_HEADER_FOLDERS tensor autograd nn data comm elastic models)
get_property(libraries GLOBAL PROPERTY ELINVAR_TOOLS_LIBRARIES)
list(TRANSFORM libraries PREPEND tools/ OUTPUT_VARIABLE tools_folders)
set(ELINVAR_BUILD_INCLUDES ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${ELINVAR_BUILD_INCLUDES}/elinvar)
foreach(folder ${ELINVAR_HEADER_FOLDERS} tools)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${ELINVAR_BUILD_INCLUDES}/elinvar/${folder} SYMBOLIC)
endforeach()

list(JOIN ELINVAR_HEADER_FOLDERS "|" names)
install(CODE "
  set(source \"${PROJECT_SOURCE_DIR}\")
  set(rewritten \"${PROJECT_BINARY_DIR}/installed-headers\")
  set(folders ${ELINVAR_HEADER_FOLDERS} ${tools_folders})
  set(names \"${names}|tools\")
")
install(CODE [[
  file(REMOVE_RECURSE ${rewritten})
  foreach(folder ${folders})
    file(GLOB_RECURSE headers RELATIVE ${source} ${source}/${folder}/*.h ${source}/${folder}/*.inc)
    foreach(header ${headers})
      file(READ ${source}/${header} text)
      string(REGEX REPLACE "#include \"((${names})/[^\"]*)\"" "#include \"elinvar/\\1\"" text "${text}")
      file(WRITE ${rewritten}/elinvar/${header} "${text}")
    endforeach()
  endforeach()
  file(INSTALL ${rewritten}/elinvar DESTINATION "${CMAKE_INSTALL_PREFIX}/include")
]])
