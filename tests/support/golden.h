// Texts that are compared with files in tests/golden.
#pragma once

#include <string>

namespace graphsink::testing {

// Without the line numbers of test sources, which move whenever one is edited: they are tested in error_test.cpp. With
// GRAPHSINK_UPDATE_GOLDEN in the environment the file is written as well.
void expect_golden(const std::string& name, const std::string& text);

}  // namespace graphsink::testing
