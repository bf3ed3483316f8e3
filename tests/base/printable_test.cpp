// Text of users and files in messages: what is UTF-8, what is escaped, and what is cut.
#include "base/printable.h"

#include <gtest/gtest.h>

#include "graphsink/error.h"

namespace graphsink::printable_test {
namespace {

TEST(Printable, Utf8IsWhatUnicodeSays) {
  for (const char* good : {"", "weight", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa4z"})
    EXPECT_TRUE(is_utf8(good)) << printable(good);
  for (const char* bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2z", "\xe0\x9f\xbf", "\xe0\xa0", "\xed\xa0\x80",
        "\xe1\x80z", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf1\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xff z"})
    EXPECT_FALSE(is_utf8(bad)) << printable(bad);
  EXPECT_TRUE(is_utf8(std::string_view("\0", 1)));
}

TEST(Printable, ControlCharactersAndForeignBytesAreEscaped) {
  EXPECT_EQ(printable("a \"name\" of \xc3\xa4\\n"), "a \"name\" of \xc3\xa4\\n");
  EXPECT_EQ(printable("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(printable(std::string_view("\0\x1b[31m\x7f", 7)), "\\x00\\x1b[31m\\x7f");
  EXPECT_EQ(printable("\xc2\x9b\xc2\xa0"), "\\xc2\\x9b\xc2\xa0");
  EXPECT_EQ(printable("\xff\xc3("), "\\xff\\xc3(");
  EXPECT_EQ(printable(printable("\x1b")), "\\x1b");
}

TEST(Printable, ALongTextIsCutBetweenCharacters) {
  EXPECT_EQ(shortened("12345", 5), "12345");
  EXPECT_EQ(shortened("123456", 5), "12345...");
  EXPECT_EQ(shortened("1234\xc3\xa4", 5), "1234...");
  EXPECT_EQ(shortened(std::string(1000, 'A')).size(), 63u);
}

TEST(Printable, AnErrorIsOneLine) {
  const Error error("op\x1b", Where("a\nb.cpp", 7), "the name is \"\r\n\"", "choose\tanother");
  EXPECT_STREQ(error.what(), "a\\nb.cpp:7: op\\x1b: the name is \"\\r\\n\"; remedy: choose\\tanother");
  EXPECT_EQ(error.op(), "op\\x1b");
  EXPECT_EQ(error.problem(), "the name is \"\\r\\n\"");
  EXPECT_EQ(error.remedy(), "choose\\tanother");
}

}  // namespace
}  // namespace graphsink::printable_test
