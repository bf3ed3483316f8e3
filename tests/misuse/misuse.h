// The table of misuses: calls that must be refused with an Error, never answered by a wrong result or a signal.
#pragma once

#include <span>
#include <vector>

#include "graphsink/graphsink.h"

namespace graphsink::testing {

// Where a row's Error gets its line from.
enum class Line : std::uint8_t {
  of_row,  // the line of the call in the row
  none,    // no line of the user is known there
};

// One misuse. Rows are written as Row{...}, so that each knows its own place in the table.
struct Row {
  const char* name;                // unique; the name of the test
  const char* op;                  // Error::op(), or null where that is a path
  std::vector<const char*> words;  // what the message must contain
  void (*act)();                   // must throw Error
  Line line;
  Where where;  // of the row, or next to it: compilers differ in which of its lines they name

  Row(const char* row_name, const char* error_op, std::vector<const char*> message_words, void (*misuse)(),
      Line error_line = Line::of_row, Where row_where = Where::current())
      : name(row_name),
        op(error_op),
        words(std::move(message_words)),
        act(misuse),
        line(error_line),
        where(row_where) {}

  ErrorCode code = ErrorCode::misuse;
  Row with(ErrorCode other) && {
    code = other;
    return std::move(*this);
  }
};

// All rows, in the order of the table.
std::span<const Row> misuses();

}  // namespace graphsink::testing
