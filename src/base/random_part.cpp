#include "base/random_part.h"

#include <string>

#include "graphsink/random_part.h"

namespace graphsink {
namespace {

thread_local std::int64_t innermost_part = 0;

}  // namespace

std::int64_t random_part() { return innermost_part; }

RandomPart::RandomPart(std::int64_t number, Where where) : outer_(innermost_part) {
  if (number < 0) throw Error("RandomPart", where, "the part is " + std::to_string(number), "give one of at least 0");
  innermost_part = number;
}

RandomPart::~RandomPart() { innermost_part = outer_; }

}  // namespace graphsink
