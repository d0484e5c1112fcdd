# elinvar_layer(<folder> SOURCES ... ALONE <names> USES <folders> LIBRARIES <external>): the library of one folder,
# linked to exactly the folders that the layer diagram in README.md lets it include. Its alias is elinvar::<folder>.
# ALONE is passed to elinvar_unite.

# Flags for reproducible results (tensor/NUMERICS.md, rule 3): one rounding per operation unless the source says fma.
set(ELINVAR_NUMERICS_FLAGS -ffp-contract=off -fno-fast-math)
set(ELINVAR_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wno-psabi)

add_library(elinvar_flags INTERFACE)
target_compile_features(elinvar_flags INTERFACE cxx_std_20)
target_compile_options(elinvar_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${ELINVAR_NUMERICS_FLAGS};${ELINVAR_WARNINGS}>
  $<$<COMPILE_LANGUAGE:CUDA>:${ELINVAR_CUDA_FLAGS}>)
if(ELINVAR_SANITIZE)
  # Every finding of a sanitizer ends the program, so that the test fails.
  target_compile_options(elinvar_flags INTERFACE -fsanitize=${ELINVAR_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  target_link_options(elinvar_flags INTERFACE -fsanitize=${ELINVAR_SANITIZE})
endif()
if(ELINVAR_FUZZ)
  # nlohmann's get() converts a JSON number beyond the range of an integer to any integer; callers check the range.
  target_compile_options(elinvar_flags INTERFACE -fno-sanitize=float-cast-overflow)
endif()

# elinvar_unite(<variable> <name> <sources> ALONE <names>): sets the variable to files that include the sources,
# ELINVAR_UNIT_SOURCES each. Compilers spend most time on headers and on the templates that all sources use, and so do
# both once for many sources: those of elastic/ compile in 58 seconds of a processor together, in 127 by eights. CMake's
# UNITY_BUILD includes absolute paths, which would prevent a compiler's cache from serving builds in other folders.
# Sources whose unnamed namespaces define the same name cannot be combined: rename one, or list its file after ALONE to
# compile it separately, as for a file with its own compiler options. Every source must still be complete: the presets
# with sanitizers compile each separately.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(unite 40)
else()
  set(unite 1)
endif()
set(ELINVAR_UNIT_SOURCES ${unite} CACHE STRING "How many sources are compiled as one")
function(elinvar_unite variable name)
  cmake_parse_arguments(unite "" "" "ALONE" ${ARGN})
  if(ELINVAR_UNIT_SOURCES LESS 2)
    set(${variable} ${unite_UNPARSED_ARGUMENTS} PARENT_SCOPE)
    return()
  endif()
  set(files "")
  set(number 0)
  set(batches "")
  foreach(source ${unite_UNPARSED_ARGUMENTS})
    get_filename_component(file ${source} NAME)
    if(file IN_LIST unite_ALONE OR NOT IS_ABSOLUTE ${source})  # sources outside the searched folder are also separate
      list(APPEND files ${source})
      continue()
    endif()
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    math(EXPR batch "${number} / ${ELINVAR_UNIT_SOURCES}")
    math(EXPR number "${number} + 1")
    list(APPEND batches ${batch})
    string(APPEND text_${batch} "#include \"${path}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES batches)
  foreach(batch ${batches})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/united/${name}_${batch}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${batch}}" @ONLY)
    # The included files are sources, so their unnamed namespaces are intended.
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
    list(APPEND files ${file})
  endforeach()
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# elinvar_compile_quickly(<target>): with less optimization, for code that spends its time in the layers below. With GCC
# -Og compiles in three quarters of the time of -O1, and -O0, whose objects are larger, is no faster.
function(elinvar_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

function(elinvar_layer folder)
  cmake_parse_arguments(layer "" "" "SOURCES;ALONE;USES;LIBRARIES" ${ARGN})
  set(target elinvar_${folder})
  if(layer_SOURCES)
    if(NOT folder STREQUAL "tensor")  # unites its sources itself
      elinvar_unite(layer_SOURCES ${folder} ${layer_SOURCES} ALONE ${layer_ALONE})
    endif()
    add_library(${target} STATIC ${layer_SOURCES})
    if(NOT folder MATCHES "^(tensor|data)$")
      elinvar_compile_quickly(${target})
    endif()
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(elinvar::${folder} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder} FOLDER ${folder})
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  # The project's flags for reproducible results also apply to other projects' networks and data.
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

# elinvar_host_layer(<folder> SOURCES ... LIBRARIES <external>): the library of a folder without GPU code, with which
# elinvarConfig.cmake can replace elinvar::<folder>.
function(elinvar_host_layer folder)
  cmake_parse_arguments(layer "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(target elinvar_${folder}_host)
  add_library(${target} STATIC ${layer_SOURCES})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder}_host FOLDER ${folder} LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PUBLIC ${layer_LIBRARIES} PRIVATE $<BUILD_INTERFACE:elinvar_flags>)
  set_property(GLOBAL APPEND PROPERTY ELINVAR_HOST_LAYERS ${target})
endfunction()
