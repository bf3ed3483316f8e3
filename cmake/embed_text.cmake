# graphsink_embed_texts(target header function namespace "name=file" ...) adds to `target` a source that defines
#   std::span<const NAMESPACE::EmbeddedText> NAMESPACE::FUNCTION()
# as `header` declares it: the texts of the files under these names. A changed file is embedded anew by the next build.
#
# As a script (cmake -P) this file writes that source.
set(GRAPHSINK_EMBED_TEXT ${CMAKE_CURRENT_LIST_FILE})

function(graphsink_embed_texts target header function namespace)
  set(files "")
  foreach(pair IN LISTS ARGN)
    string(REGEX REPLACE "^[^=]*=" "" file "${pair}")
    list(APPEND files ${file})
  endforeach()
  list(REMOVE_DUPLICATES files)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_${function}.cpp)
  string(REPLACE ";" "|" pairs "${ARGN}")
  add_custom_command(OUTPUT ${source} DEPENDS ${files} ${GRAPHSINK_EMBED_TEXT} VERBATIM
    COMMAND ${CMAKE_COMMAND} "-DPAIRS=${pairs}" -DHEADER=${header} -DFUNCTION=${function} -DNAMESPACE=${namespace}
            -DOUTPUT=${source} -P ${GRAPHSINK_EMBED_TEXT})
  target_sources(${target} PRIVATE ${source})
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  string(REPLACE "|" ";" PAIRS "${PAIRS}")
  set(entries "")
  foreach(pair IN LISTS PAIRS)
    string(REGEX MATCH "^([^=]*)=(.*)$" pair "${pair}")
    set(name ${CMAKE_MATCH_1})
    file(READ ${CMAKE_MATCH_2} text)
    string(APPEND entries "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n"
       "std::span<const EmbeddedText> ${FUNCTION}() {\n  static constexpr EmbeddedText kTexts[] = {\n${entries}  };\n"
       "  return kTexts;\n}\n\n}  // namespace ${NAMESPACE}\n")
endif()
