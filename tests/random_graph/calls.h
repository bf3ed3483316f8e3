// The calls of a user that a recipe stands for, where they are more than ops: build.cpp gives them to the library, and
// the oracle computes them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"

namespace graphsink::testing {

// An option of an optimizer: a number, a Value, or a Variable by its place in Building::states.
struct Rate {
  double number = 0;
  Value value = {};
  int state = -1;
};

struct Update {
  bool is_adamw = false;
  Value loss;
  struct Group {
    std::vector<int> parameters;  // places in Building::states
    std::optional<Rate> lr = {};
    std::optional<double> weight_decay = {};
  };
  std::vector<Group> groups;
  Rate lr;
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double clip_norm = 0;
  int accumulate = 1;
};

class Calls {
 public:
  using Body = std::function<Values()>;
  using Condition = std::function<Value(const Values&)>;
  using Step = std::function<Values(const Values&)>;
  using Slice = std::function<Scan(const Values&, const Values&)>;

  Calls() = default;
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  virtual ~Calls() = default;

  // The Variable's value now, or a new one. Variables are places in Building::states.
  virtual Value value(int state) = 0;
  virtual void assign(int state, const Value& value) = 0;
  virtual Value if_(const Value& predicate, const Body& then_body, const Body& else_body) = 0;
  virtual Value switch_(const Value& index, const std::vector<Body>& bodies) = 0;
  virtual Values while_(const Values& init, const Condition& condition, const Step& body,
                        const WhileOptions& options) = 0;
  virtual Scan scan(const Values& init, const Values& inputs, const Slice& body) = 0;
  virtual Value grad(const Value& loss, const Value& wrt) = 0;
  // Appends the optimizer's Variables to Building::states.
  virtual void update(const Update& update) = 0;
  // An op of the user's that is part of the commit: variable -= rate * other.
  virtual void commit(int state, const Value& rate, const Value& other) = 0;
  virtual void output(const std::string& name, const Value& value) = 0;
  virtual void record(const std::string& name, const Value& value) = 0;
  // Whether the code under way is that of a loop's body.
  virtual bool is_in_loop() const = 0;
  // What only the graph can tell: the oracle decides as the building of the graph did.
  virtual bool decide(bool value) = 0;

  // Runs a stretch of the user's code, which is the `place`th of the one around it, so that the oracle finds which node
  // of the graph an op of the stretch is.
  template <class F>
  auto within(int place, const F& code) {
    path_.push_back(place);
    enter();
    auto result = code();
    path_.push_back(kEnd);
    enter();
    path_.resize(path_.size() - 2);
    return result;
  }

  // The stretches of a call, and of a function whose inner numbers are nobody's business.
  static constexpr int kCall = -2, kHidden = -5;

 protected:
  // Stretches, beside the numbers of entries. Further bodies are kBody - 1 and so on, further calls of a condition in
  // front of its loop kFront - 1 and so on.
  static constexpr int kEnd = -1, kInBody = -3, kBody = -10, kFront = -1000;

  // A stretch begins, or the one around path_ goes on.
  virtual void enter() = 0;
  std::vector<int> path_;
};

// What the building of a graph leaves for the oracle.
struct Notes {
  struct Place {
    int node = 0, region = 0;
  };
  std::map<std::vector<int>, Place> places;  // by path: the node that the stretch begins with
  std::map<std::vector<int>, int> fronts;    // of a loop: which call of its condition was made in front of it
  std::vector<bool> decisions;
  // For each gradient that is computed, in order: the number of its first output if it passes through a loop or branch,
  // else -1.
  std::vector<int> gradients;
  // For each optimizer, in order: its first Variable in Building::states, and the one behind its last.
  std::vector<std::pair<int, int>> optimizer_states;
};

}  // namespace graphsink::testing
