# SPDX-License-Identifier: Apache-2.0
# How this project declares libraries, tests and fuzz targets. Used by every CMakeLists.txt of the tree.

option(VTPU_WERROR "treat warnings as errors" ON)
option(VTPU_FUZZ "build the libFuzzer targets (needs clang)" OFF)

add_library(vtpu_flags INTERFACE)
# Sanitizers hide value ranges from the compiler, which then sees truncation everywhere.
target_compile_options(vtpu_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<CONFIG:Debug>:-Wno-format-truncation>
  $<$<BOOL:${VTPU_WERROR}>:-Werror> -fno-math-errno -ffp-contract=off)
target_compile_definitions(vtpu_flags INTERFACE _GNU_SOURCE)
target_include_directories(vtpu_flags INTERFACE ${CMAKE_SOURCE_DIR}/include)
if(VTPU_FUZZ)
  file(WRITE ${CMAKE_BINARY_DIR}/targets.tsv "")  # name and corpus of every target, for ./dev fuzz
endif()
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# Tests, fuzz targets and benches may use every header.
add_library(vtpu_sees_all INTERFACE)
target_link_libraries(vtpu_sees_all INTERFACE vtpu_flags)
target_include_directories(vtpu_sees_all INTERFACE ${CMAKE_SOURCE_DIR}/src)

# vtpu_stage(NAME USES base ir): what the folder src/NAME may include: itself, what it uses and what those use. The
# links of a folder are its include path, so an include that docs/architecture.md does not allow fails to compile.
function(vtpu_stage name)
  cmake_parse_arguments(ARG "" "" "USES" ${ARGN})
  set(sees ${name})
  foreach(used ${ARG_USES})
    get_property(more GLOBAL PROPERTY VTPU_SEES_${used})
    list(APPEND sees ${more})
  endforeach()
  list(REMOVE_DUPLICATES sees)
  set_property(GLOBAL PROPERTY VTPU_SEES_${name} ${sees})
  file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/sees/${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/sees/${name})
  foreach(folder ${sees})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${folder} ${CMAKE_BINARY_DIR}/sees/${name}/${folder} SYMBOLIC)
  endforeach()
endfunction()

# vtpu_belongs(TARGET NAME): the target is built from src/NAME.
function(vtpu_belongs target name)
  target_link_libraries(${target} PRIVATE vtpu_flags)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/sees/${name})
endfunction()

# vtpu_library(NAME SOURCES a.c b.c USES base ir LIBS m OUTSIDE ext): the stage vt_NAME, usable by later stages.
# Programs are linked with the OUTSIDE libraries; libvtpu.so (VTPU_CLOSED) uses archives instead (vtpu_archives,
# docs/decisions/007).
function(vtpu_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS;OUTSIDE" ${ARGN})
  add_library(vt_${name} STATIC ${ARG_SOURCES})
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/${name})
    vtpu_stage(${name} USES ${ARG_USES})
    vtpu_belongs(vt_${name} ${name})
  else()
    target_link_libraries(vt_${name} PRIVATE vtpu_sees_all)
  endif()
  target_link_libraries(vt_${name} PUBLIC vtpu_flags Threads::Threads)
  foreach(used ${ARG_USES})
    target_link_libraries(vt_${name} PUBLIC vt_${used})
  endforeach()
  target_link_libraries(vt_${name} PUBLIC ${ARG_LIBS})
  foreach(lib ${ARG_OUTSIDE})
    target_link_libraries(vt_${name} PUBLIC $<IF:$<BOOL:$<TARGET_PROPERTY:VTPU_CLOSED>>,vtpu_archives,${lib}>)
  endforeach()
endfunction()

# vtpu_test(NAME SOURCES NAME.c USES ir LABELS quick): a cmocka program run by CTest. Default label: quick.
function(vtpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${name}.c)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS quick)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE vtpu_sees_all cmocka ${ARG_LIBS})
  target_compile_definitions(${name} PRIVATE VTPU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  foreach(used ${ARG_USES})
    target_link_libraries(${name} PRIVATE vt_${used})
  endforeach()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()

# vtpu_threads(TEST ...): tests that also run under ThreadSanitizer (./dev test --sanitizers). Their programs are the
# target `threads`; others need not build there. A data race ends the program.
add_custom_target(threads)
function(vtpu_threads)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY LABELS threads)
    if(TARGET ${name})
      add_dependencies(threads ${name})
    endif()
    if(CMAKE_C_FLAGS MATCHES "-fsanitize=thread")
      set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
        "TSAN_OPTIONS=halt_on_error=1:suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
    endif()
  endforeach()
endfunction()

# vtpu_refuses_memory(NAME): in this test, requests of our code for memory may be refused (tests/refused_memory.h).
function(vtpu_refuses_memory name)
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/refused_memory.c)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  foreach(function malloc calloc realloc aligned_alloc strdup)
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()

# vtpu_fuzz(NAME SOURCES f.c USES import CORPUS dir): a libFuzzer target, and a CTest that replays the corpus with
# the ordinary compiler (fuzz/replay.c). CORPUS is an absolute path or in the calling folder.
function(vtpu_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;USES;LIBS" ${ARGN})
  if(ARG_CORPUS)
    cmake_path(ABSOLUTE_PATH ARG_CORPUS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  if(VTPU_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE vtpu_sees_all -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
    file(APPEND ${CMAKE_BINARY_DIR}/targets.tsv "${name}\t${ARG_CORPUS}\n")
  else()
    add_executable(${name} ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/fuzz/replay.c)
    target_link_libraries(${name} PRIVATE vtpu_sees_all)
    add_test(NAME ${name}_corpus COMMAND ${name} ${ARG_CORPUS})
    set_tests_properties(${name}_corpus PROPERTIES LABELS quick TIMEOUT 300)
  endif()
  foreach(used ${ARG_USES})
    target_link_libraries(${name} PRIVATE vt_${used})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
endfunction()

# vtpu_python_test(NAME SCRIPT args... ): a script run by build/venv's Python, resolved when the test runs; 77 =
# skipped.
# In a build with sanitizers their runtime is loaded first: the interpreter has none.
function(vtpu_python_test name script)
  cmake_path(ABSOLUTE_PATH script BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME ${name} COMMAND sh -c "[ -x \"$0\" ] || { echo \"skipped: no $0\"; exit 77; }; exec \"$0\" \"$@\""
    ${CMAKE_SOURCE_DIR}/build/venv/bin/python ${script} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS client SKIP_RETURN_CODE 77 TIMEOUT 300)
  if(CMAKE_C_FLAGS MATCHES "-fsanitize=address")
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libasan.so OUTPUT_VARIABLE asan
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libubsan.so OUTPUT_VARIABLE ubsan
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "LD_PRELOAD=${asan}:${ubsan};ASAN_OPTIONS=detect_leaks=0")
  endif()
endfunction()
