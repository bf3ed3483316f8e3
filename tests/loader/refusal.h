// What the tests of orders and of preparing samples expect of an Error.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graphsink/error.h"

namespace graphsink::testing {

// The call throws an Error of misuse that has these words, a remedy, and a line of this file.
template <class Call>
void expect_refused(Call call, const std::vector<std::string>& words, const char* file = __builtin_FILE()) {
  const std::string path = file, place = path.substr(path.rfind('/') + 1) + ":";
  try {
    call();
    ADD_FAILURE() << "no Error, expected " << words[0];
  } catch (const Error& error) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
    EXPECT_FALSE(error.remedy().empty());
    EXPECT_EQ(error.code(), ErrorCode::misuse);
  }
}

}  // namespace graphsink::testing
