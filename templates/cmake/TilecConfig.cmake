# find_package(Tilec): .tile files as sources of a target.
#
#   find_package(Tilec REQUIRED)
#   tilec_add_kernels(program FILES first.tile second.tile ARCH sm_90)
#
# `tilec --cmake-dir` prints this folder, for Tilec_DIR or CMAKE_PREFIX_PATH. The cache variable Tilec_EXECUTABLE names
# the program; by default it is that of the Python installation that this folder belongs to, else the one on PATH.

set(Tilec_FOUND FALSE)
if(CMAKE_VERSION VERSION_LESS 3.21)
  set(Tilec_NOT_FOUND_MESSAGE "Tilec needs CMake 3.21 or newer; this is ${CMAKE_VERSION}")
  return()
endif()

cmake_policy(PUSH)
cmake_policy(VERSION 3.21)

# ---- the program

# PREFIX/lib/pythonX.Y/site-packages/tilec/templates/cmake, or CHECKOUT/templates/cmake with `make`'s .venv.
find_program(Tilec_EXECUTABLE tilec
  PATHS "${CMAKE_CURRENT_LIST_DIR}/../../../../../../bin" "${CMAKE_CURRENT_LIST_DIR}/../../.venv/bin"
  NO_DEFAULT_PATH DOC "the program tilec")
find_program(Tilec_EXECUTABLE tilec DOC "the program tilec")

if(NOT Tilec_EXECUTABLE)
  set(Tilec_NOT_FOUND_MESSAGE
      "there is no program `tilec` beside ${CMAKE_CURRENT_LIST_DIR} or on PATH: install it, or name it with -DTilec_EXECUTABLE=PATH")
else()
  execute_process(COMMAND "${Tilec_EXECUTABLE}" --version
    OUTPUT_VARIABLE _tilec_says ERROR_VARIABLE _tilec_says RESULT_VARIABLE _tilec_status)
  if(_tilec_status EQUAL 0 AND _tilec_says MATCHES "^tilec ([0-9.]+)")
    set(Tilec_FOUND TRUE)
    set(Tilec_EXECUTABLE_VERSION "${CMAKE_MATCH_1}")
  else()
    string(STRIP "${_tilec_says}" _tilec_says)
    set(Tilec_NOT_FOUND_MESSAGE
        "Tilec_EXECUTABLE is ${Tilec_EXECUTABLE}, which does not run as tilec (${_tilec_status}): ${_tilec_says}")
  endif()
  unset(_tilec_says)
  unset(_tilec_status)
endif()

# ---- kernels

# tilec_add_kernels(TARGET FILES a.tile b.tile ... [TUNED] [ARCH sm_90 ...] [DEFINES NAME=VALUE ...] [HEADER_VAR VAR])
#
# Compiles each FILE to FILE.cu, a source of TARGET, and FILE.h, in a folder that TARGET includes from. It is compiled again
# when FILE or what it imports has changed. ARCH defaults to the CUDA_ARCHITECTURES of TARGET. DEFINES sets bracket
# parameters of all FILES. TUNED compiles all variants that FILE.tuning names, among which the launcher selects. VAR gets the paths of the headers. TARGET may be one of add_custom_target, which gets the files
# and builds nothing from them.
function(tilec_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TUNED" "HEADER_VAR" "FILES;ARCH;DEFINES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tilec_add_kernels: `${arg_UNPARSED_ARGUMENTS}` follows no keyword; FILES, TUNED, ARCH, DEFINES and HEADER_VAR are known")
  elseif(NOT arg_FILES)
    message(FATAL_ERROR "tilec_add_kernels: there are no FILES for `${target}`")
  elseif(NOT TARGET ${target})
    message(FATAL_ERROR "tilec_add_kernels: there is no target `${target}`; add it first")
  endif()
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(type ${target} TYPE)
  if(NOT folder STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    message(FATAL_ERROR "tilec_add_kernels: `${target}` is a target of ${folder}; call it in that folder")
  elseif(NOT type STREQUAL "UTILITY" AND NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "tilec_add_kernels: `${target}` needs CUDA as a language: project(... LANGUAGES CXX CUDA)")
  endif()

  set(options)
  _tilec_archs(archs ${target} "${arg_ARCH}")
  foreach(arch IN LISTS archs)
    list(APPEND options --arch ${arch})
  endforeach()
  foreach(define IN LISTS arg_DEFINES)
    list(APPEND options -D ${define})
  endforeach()
  if(arg_TUNED)
    list(APPEND options --tuned)
  endif()
  # Ninja looks at the outputs' times after a command (`restat`); make would run the command for ever.
  if(CMAKE_GENERATOR MATCHES "Ninja")
    list(APPEND options --if-changed)
  endif()

  set(made "${CMAKE_CURRENT_BINARY_DIR}/tilec/${target}")
  file(MAKE_DIRECTORY "${made}")
  get_target_property(headers ${target} TILEC_HEADERS)
  if(NOT headers)
    set(headers)
  endif()
  set(added)
  foreach(file IN LISTS arg_FILES)
    get_filename_component(source "${file}" ABSOLUTE)
    get_filename_component(name "${file}" NAME_WLE)
    set(base "${made}/${name}")
    if("${base}.h" IN_LIST headers)
      message(FATAL_ERROR "tilec_add_kernels: `${target}` has two files of the name `${name}`")
    endif()
    add_custom_command(
      OUTPUT "${base}.cu" "${base}.h"
      COMMAND "${Tilec_EXECUTABLE}" compile "${source}" -o "${base}.cu" --header "${base}.h" ${options}
              -MD -MF "${base}.d"
      DEPENDS "${source}" "${Tilec_EXECUTABLE}"
      DEPFILE "${base}.d"
      COMMENT "tilec ${name}.tile"
      VERBATIM)
    target_sources(${target} PRIVATE "${base}.cu" "${base}.h")
    list(APPEND headers "${base}.h")
    list(APPEND added "${base}.h")
  endforeach()
  set_target_properties(${target} PROPERTIES TILEC_HEADERS "${headers}")
  if(NOT type STREQUAL "UTILITY")
    target_include_directories(${target} PRIVATE "${made}")
  endif()
  if(arg_HEADER_VAR)
    set(${arg_HEADER_VAR} "${added}" PARENT_SCOPE)
  endif()
endfunction()

# The architectures in tilec's names: those given, else those of the target that are numbers (`90`, `90a`, `80-real`).
function(_tilec_archs result target given)
  set(archs ${given})
  if(NOT archs)
    get_target_property(named ${target} CUDA_ARCHITECTURES)
    foreach(arch IN LISTS named)
      if(arch MATCHES "^([0-9]+[a-z]?)(-real|-virtual)?$")
        list(APPEND archs sm_${CMAKE_MATCH_1})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES archs)
  endif()
  set(${result} ${archs} PARENT_SCOPE)
endfunction()

cmake_policy(POP)
