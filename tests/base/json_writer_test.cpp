// JsonWriter writes what nlohmann::json would.
#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace graphsink::json_writer_test {
namespace {

using Json = nlohmann::ordered_json;

// Each kind of value, in an object and in an array, and empty ones.
std::string written(int indent) {
  JsonWriter json(indent);
  json.begin_object();
  json.member("text", "\"a\\b\"\b\f\n\r\t\x1f\x7f/\xc3\xa4\xf0\x9f\x98\x80");
  json.member("no", false);
  json.member("least", std::numeric_limits<std::int64_t>::min());
  json.member("most", std::numeric_limits<std::uint64_t>::max());
  json.member("small", 1e-9);
  json.member("half", 0.5);
  json.key("nothing");
  json.null();
  json.key("empty");
  json.begin_array();
  json.begin_object();
  json.end_object();
  json.begin_array();
  json.end_array();
  json.null();
  json.value("");
  json.end_array();
  json.key("numbers");
  json.array(std::vector<int>{1, -2});
  json.end_object();
  return json.take();
}

TEST(JsonWriter, WritesWhatTheLibraryWrites) {
  const std::string compact = written(-1);
  EXPECT_EQ(compact, Json::parse(compact).dump());
  EXPECT_EQ(written(2), Json::parse(compact).dump(2));
}

TEST(JsonWriter, InfinitiesAndNansAreText) {
  JsonWriter json;
  json.begin_array();
  json.value(-std::numeric_limits<double>::infinity());
  json.value(std::numeric_limits<double>::quiet_NaN());
  json.end_array();
  EXPECT_EQ(json.take(), "[\"-inf\",\"nan\"]");
}

TEST(JsonWriter, WhatIsNotUtf8IsReplaced) {
  JsonWriter json;
  json.value("a\xff\xc3(");
  EXPECT_EQ(json.take(), "\"a\xef\xbf\xbd\xef\xbf\xbd(\"");
}

}  // namespace
}  // namespace graphsink::json_writer_test
