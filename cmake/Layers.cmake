# elinvar_layer(<folder> SOURCES ... ALONE <names> USES <folders> LIBRARIES <external>): the library of one folder, linked
# to exactly the folders that the layer diagram in README.md lets it include. elinvar::<folder> names it. ALONE is for
# elinvar_unite.

# What keeps the bits (tensor/NUMERICS.md, rule 3): one rounding an operation unless the source says fma.
set(ELINVAR_NUMERICS_FLAGS -ffp-contract=off -fno-fast-math)
set(ELINVAR_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wno-psabi)

add_library(elinvar_flags INTERFACE)
target_compile_features(elinvar_flags INTERFACE cxx_std_20)
target_compile_options(elinvar_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${ELINVAR_NUMERICS_FLAGS};${ELINVAR_WARNINGS}>
  $<$<COMPILE_LANGUAGE:CUDA>:${ELINVAR_CUDA_FLAGS}>)
if(ELINVAR_SANITIZE)
  # Whatever a sanitizer finds ends the program, so that it fails the test.
  target_compile_options(elinvar_flags INTERFACE -fsanitize=${ELINVAR_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  target_link_options(elinvar_flags INTERFACE -fsanitize=${ELINVAR_SANITIZE})
endif()
if(ELINVAR_FUZZ)
  # A JSON number beyond the range of an integer becomes any integer in nlohmann's get(); whoever reads one checks it.
  target_compile_options(elinvar_flags INTERFACE -fno-sanitize=float-cast-overflow)
endif()

# elinvar_unite(<variable> <name> <sources> ALONE <names>): sets the variable to files that include the sources, eight
# each. Most of a compiler's time goes into headers, and this way it reads them once for eight sources. (CMake's
# UNITY_BUILD includes absolute paths, so that a compiler's cache would not serve another folder that the project is
# built in.) Sources whose unnamed namespaces define the same name cannot be together: either has another name, or its file
# is listed after ALONE and compiled by itself, like a file with compiler options of its own. Each source is a whole one
# all the same: the presets with sanitizers compile every one by itself.
string(COMPARE EQUAL "${CMAKE_BUILD_TYPE}" Release unite)
option(ELINVAR_UNITE "Compile several sources as one" ${unite})
function(elinvar_unite variable name)
  cmake_parse_arguments(unite "" "" "ALONE" ${ARGN})
  if(NOT ELINVAR_UNITE)
    set(${variable} ${unite_UNPARSED_ARGUMENTS} PARENT_SCOPE)
    return()
  endif()
  set(files "")
  set(number 0)
  set(batches "")
  foreach(source ${unite_UNPARSED_ARGUMENTS})
    get_filename_component(file ${source} NAME)
    if(file IN_LIST unite_ALONE OR NOT IS_ABSOLUTE ${source})  # others, too, than those that a folder was searched for
      list(APPEND files ${source})
      continue()
    endif()
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    math(EXPR batch "${number} / 8")
    math(EXPR number "${number} + 1")
    list(APPEND batches ${batch})
    string(APPEND text_${batch} "#include \"${path}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES batches)
  foreach(batch ${batches})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/united/${name}_${batch}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${batch}}" @ONLY)
    # An unnamed namespace in an included file is not a header's here.
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
    list(APPEND files ${file})
  endforeach()
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

function(elinvar_layer folder)
  cmake_parse_arguments(layer "" "" "SOURCES;ALONE;USES;LIBRARIES" ${ARGN})
  set(target elinvar_${folder})
  if(layer_SOURCES)
    if(NOT folder STREQUAL "tensor")
      elinvar_unite(layer_SOURCES ${folder} ${layer_SOURCES} ALONE ${layer_ALONE})
    endif()
    add_library(${target} STATIC ${layer_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(elinvar::${folder} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder} FOLDER ${folder})
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  # What another project computes with its own networks and data keeps the bits, too.
  target_compile_options(${target} INTERFACE $<INSTALL_INTERFACE:${ELINVAR_NUMERICS_FLAGS}>)
  if(layer_SOURCES)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:elinvar_flags>)
    target_compile_features(${target} PUBLIC cxx_std_20)
  endif()
  foreach(used ${layer_USES})
    target_link_libraries(${target} ${scope} elinvar_${used})
  endforeach()
  target_link_libraries(${target} ${scope} ${layer_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY ELINVAR_LAYERS ${target})
endfunction()
