// Compares texts with files in tests/golden.
#pragma once

#include <string>

namespace graphsink::testing {

// Compares `text` with a file, without the line numbers of test sources, which change whenever a test is edited;
// error_test.cpp tests those. If GRAPHSINK_UPDATE_GOLDEN is set in the environment, the file is written first.
void expect_golden(const std::string& name, const std::string& text);

}  // namespace graphsink::testing
