// The attributes of a node: a struct of the op's, which the planner can compare and explain() prints.
#pragma once

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "graphsink/fields.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// An op's attributes: any copyable struct. Immutable, and cheap to copy, since copies share the struct.
class Attrs {
 public:
  Attrs() = default;  // none
  // Takes the struct over. Implicit, so that emit() takes a struct.
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Attrs>) Attrs(T value)
      : data_(std::make_shared<const T>(std::move(value))), kind_(&kind_of<T>) {}  // NOLINT: implicit

  // Attributes are equal if they are copies of each other, or if their structs have one type and equal values. If two
  // nodes have equal inputs and equal attributes, the planner computes only one of them. A struct that names its fields
  // (fields.h) is compared by them, floating-point numbers bit for bit. Any other struct is compared by its operator==,
  // which must return false for any difference that changes the outputs, such as between 0.0 and -0.0. Structs that
  // have neither are equal only if they have no members.
  friend bool operator==(const Attrs& a, const Attrs& b) {
    if (a.data_ == b.data_) return true;
    return b.kind_ != nullptr && a.is(*b.kind_) && b.kind_->are_equal(a.data_.get(), b.data_.get());
  }

  // Whether the struct names its fields, which explain_json() prints.
  bool has_fields() const { return kind_ != nullptr && kind_->visit != nullptr; }
  // Passes the fields to the visitor, if the struct names them.
  void visit_fields(FieldVisitor& visitor) const {
    if (has_fields()) kind_->visit(data_.get(), visitor);
  }

  // The struct that was given to emit(). Throws Error if its type is not T.
  template <class T>
  const T& as() const {
    if (!is(kind_of<T>)) throw_mismatch(typeid(T));
    return *static_cast<const T*>(data_.get());
  }
  // The same, or nullptr if its type is not T.
  template <class T>
  const T* get_if() const {
    return is(kind_of<T>) ? static_cast<const T*>(data_.get()) : nullptr;
  }

 private:
  struct Kind {
    const std::type_info& type;
    bool (*are_equal)(const void*, const void*);
    void (*visit)(const void*, FieldVisitor&);  // nullptr: the struct does not name its fields
  };
  template <class T>
  static constexpr auto visit_of() -> void (*)(const void*, FieldVisitor&) {
    if constexpr (NamesFields<T>) {
      return [](const void* x, FieldVisitor& visitor) { graphsink::visit_fields(visitor, *static_cast<const T*>(x)); };
    } else {
      return nullptr;
    }
  }
  template <class T>
  static constexpr Kind kind_of{
      typeid(T),
      [](const void* a, const void* b) { return is_same_value(*static_cast<const T*>(a), *static_cast<const T*>(b)); },
      visit_of<T>()};
  // Two shared libraries may each have a Kind of one type.
  bool is(const Kind& wanted) const { return kind_ == &wanted || (kind_ != nullptr && kind_->type == wanted.type); }
  [[noreturn]] void throw_mismatch(const std::type_info& wanted) const;

  std::shared_ptr<const void> data_;
  const Kind* kind_ = nullptr;
};

}  // namespace graphsink
