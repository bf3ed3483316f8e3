// JSON of program files: FieldIo on both sides, and values that know their place in the file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "base/printable.h"
#include "graphsink/error.h"
#include "graphsink/field_io.h"

namespace graphsink {

// Writes fields as JSON. Numbers that JSON does not have are texts: "0x" and their bits.
class JsonFieldWriter final : public FieldIo {
 public:
  explicit JsonFieldWriter(JsonWriter& json) : json_(json) {}

  bool is_reading() const override { return false; }
  void begin_struct() override { json_.begin_object(); }
  void name(std::string_view name) override { json_.key(name); }
  void end_struct() override { json_.end_object(); }
  std::size_t begin_list(std::size_t size) override;
  void end_list() override { json_.end_array(); }
  bool has_value(bool has) override;
  void flag(bool& is) override { json_.value(is); }
  void integer(std::int64_t& number, std::int64_t, std::int64_t) override { json_.value(number); }
  void natural(std::uint64_t& number, std::uint64_t) override { json_.value(number); }
  void real(double& number) override;
  void text(std::string& text) override;
  [[noreturn]] void refuse(const std::string& problem) const override;

 private:
  JsonWriter& json_;
};

inline std::string in_quotes(std::string_view text) { return "\"" + shortened(text) + "\""; }

// A value of the JSON of a graph, and where in it. Borrows the JSON.
class JsonField {
 public:
  using Json = nlohmann::json;

  // `file` and `where` are named in Errors; both must outlive the JsonField.
  JsonField(const Json& json, const std::string& file, const Where& where)
      : json_(&json), file_(&file), where_(&where) {}

  // Throws Error(file, where, "graph, nodes[3].op: ...").
  [[noreturn]] void refuse(const std::string& problem) const;
  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;
  // Runs what may throw an Error of the graph under construction, and has it name this place.
  template <class F>
  auto guard(const F& f) const {
    try {
      return f();
    } catch (const Error& e) {
      if (e.op() == *file_) throw;
      refuse(e.op() + ": " + e.problem());
    }
  }

  // Objects. Throw Error for other values; member() for a name that is not there.
  JsonField member(std::string_view name) const;
  std::optional<JsonField> find(std::string_view name) const;
  void expect_object() const;
  // Throws Error if there are members of other names.
  void expect_members(const std::set<std::string, std::less<>>& names) const;
  // Lists.
  std::size_t size() const;
  JsonField operator[](std::size_t i) const;

  bool is_list() const { return json_->is_array(); }
  bool is_null() const { return json_->is_null(); }
  bool is_integer() const { return json_->is_number_integer(); }
  bool flag() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  int index(std::size_t end) const;  // below `end`
  std::uint64_t natural(std::uint64_t most) const;
  double real() const;
  const std::string& text() const;

 private:
  friend class JsonFieldReader;

  [[noreturn]] void refuse_kind(const char* expected) const;
  std::string place() const;

  static constexpr int kMostSteps = 8;  // deeper fields are named by the first steps
  struct Step {
    std::string_view name;  // a member; empty: an element
    std::size_t number = 0;
  };
  JsonField inner(const Json& json, Step step) const;

  const Json* json_;
  const std::string* file_;
  const Where* where_;
  Step steps_[kMostSteps];
  int depth_ = 0;
};

// Reads fields from JSON.
class JsonFieldReader final : public FieldIo {
 public:
  explicit JsonFieldReader(const JsonField& field) : next_(field) {}

  bool is_reading() const override { return true; }
  void begin_struct() override;
  void name(std::string_view name) override;
  void end_struct() override;
  std::size_t begin_list(std::size_t size) override;
  void end_list() override;
  bool has_value(bool has) override;
  void flag(bool& is) override;
  void integer(std::int64_t& number, std::int64_t least, std::int64_t most) override;
  void natural(std::uint64_t& number, std::uint64_t most) override;
  void real(double& number) override;
  void text(std::string& text) override;
  [[noreturn]] void refuse(const std::string& problem) const override;

 private:
  // The next value: of a field that was named, or the next element of the innermost list.
  JsonField take();

  struct Open {
    JsonField field;
    std::set<std::string, std::less<>> names{};  // that were asked for
    std::size_t elements = 0;                    // that were taken
  };
  std::vector<Open> open_;
  std::optional<JsonField> next_;  // none: the next element of a list
  std::optional<JsonField> last_{};
};

// Parses the text. Throws Error(file, where, ...) for what is no JSON, or nested deeper than a graph is.
nlohmann::json parse_graph(const std::string& text, const std::string& file, const Where& where);

}  // namespace graphsink
