# elinvar_layer(<folder> SOURCES ... USES <folders> LIBRARIES <external>): the library of one folder, linked to
# exactly the folders that the layer diagram in README.md lets it include. elinvar::<folder> names it.

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

function(elinvar_layer folder)
  cmake_parse_arguments(layer "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  set(target elinvar_${folder})
  if(layer_SOURCES)
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
