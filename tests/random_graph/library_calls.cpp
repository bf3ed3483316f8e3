// The calls of a recipe, given to the library.
#include <algorithm>

#include "base/at.h"
#include "ir/graph_data.h"
#include "kernels/optim/optimizer_ops.h"
#include "random_graph.h"

namespace graphsink::testing {
namespace {

class LibraryCalls : public Calls {
 public:
  explicit LibraryCalls(Building& building) : building_(building) {}

  Value value(int state) override { return building_.graph.value(variable(state)); }
  void assign(int state, const Value& value) override { graphsink::assign(variable(state), value); }

  Value if_(const Value& predicate, const Body& then_body, const Body& else_body) override {
    return graphsink::if_(predicate, body(0, then_body), body(1, else_body))[0];
  }
  Value switch_(const Value& index, const std::vector<Body>& bodies) override {
    std::vector<std::function<Values()>> made;
    for (std::size_t i = 0; i < bodies.size(); ++i) made.push_back(body(static_cast<int>(i), bodies[i]));
    return graphsink::switch_(index, made)[0];
  }

  // The condition is called in front of the loop and in its body, more than once if the loop is built again. What was
  // called in front of the last body counts.
  Values while_(const Values& init, const Condition& condition, const Step& step,
                const WhileOptions& options) override {
    const int outside = data().current_region;
    int asked = 0, front = 0;
    Values results = graphsink::while_(
        init,
        [&](const Values& state) {
          const bool is_in_body = data().current_region != outside;
          return within(is_in_body ? kInBody : kFront - asked++, [&] { return condition(state); });
        },
        [&](const Values& state) {
          front = asked - 1;
          return within(kBody, [&] { return step(state); });
        },
        options);
    building_.notes.fronts[path_] = kFront - front;
    return results;
  }

  Scan scan(const Values& init, const Values& inputs, const Slice& slice) override {
    return graphsink::scan(
        {init.begin(), init.end()}, {inputs.begin(), inputs.end()},
        [&](const Values& state, const Values& slices) { return within(kBody, [&] { return slice(state, slices); }); });
  }

  Value grad(const Value& loss, const Value& wrt) override {
    const std::size_t first = data().nodes.size();
    const Value made = graphsink::grad(loss, {wrt})[0];
    note_gradient(first, made);
    return made;
  }

  void update(const Update& update) override {
    const std::size_t first = data().nodes.size();
    const auto begin = static_cast<int>(building_.states.size());
    std::vector<ParameterGroup> groups;
    for (const Update::Group& group : update.groups) {
      groups.push_back({});
      for (int state : group.parameters) groups.back().parameters.push_back(variable(state));
      if (group.lr) groups.back().lr = arg(*group.lr);
      groups.back().weight_decay = group.weight_decay;
    }
    GradientOptions gradients{.clip_norm = update.clip_norm, .accumulate = update.accumulate};
    Optimizer made = update.is_adamw
                         ? adamw(update.loss, groups,
                                 {.lr = arg(update.lr), .weight_decay = update.weight_decay, .gradients = gradients})
                         : sgd(update.loss, groups,
                               {.lr = arg(update.lr),
                                .momentum = update.momentum,
                                .nesterov = update.nesterov,
                                .weight_decay = update.weight_decay,
                                .gradients = gradients});
    for (const Update::Group& group : update.groups)
      for (int state : group.parameters) note_gradient(first, gradient_of(first, variable(state), update.accumulate));
    for (const Variable& variable : made.variables()) {
      auto is_known = [&](const Building::State& state) { return state.variable == variable; };
      if (std::any_of(building_.states.begin(), building_.states.end(), is_known)) continue;  // a rate of the recipe's
      Building::State state{variable, variable.read(), {}};
      state.is_committed = true;
      building_.states.push_back(state);
    }
    building_.notes.optimizer_states.emplace_back(begin, static_cast<int>(building_.states.size()));
  }

  void commit(int state, const Value& rate, const Value& other) override {
    const Value yes = building_.graph.constant(Tensor::scalar(true));
    const Value one = building_.graph.constant(Tensor::scalar(1.0f));
    emit(sgd_op, {building_.graph.step(), yes, one, rate, building_.graph.value(variable(state)), other}, SgdAttrs{});
  }

  void output(const std::string& name, const Value& value) override {
    building_.graph.output(name, value);
    building_.outputs.push_back(name);
  }
  void record(const std::string& name, const Value& value) override {
    building_.graph.record(name, value);
    building_.records.push_back(name);
  }
  bool is_in_loop() const override {
    for (int region = data().current_region; region >= 0; region = data().regions[at(region)].parent)
      if (data().regions[at(region)].is_loop) return true;
    return false;
  }
  bool decide(bool value) override {
    building_.notes.decisions.push_back(value);
    return value;
  }

 protected:
  void enter() override {
    building_.notes.places[path_] = {static_cast<int>(data().nodes.size()), data().current_region};
  }

 private:
  GraphData& data() const { return *building_.graph.data(); }
  const Variable& variable(int state) const { return building_.states[at(state)].variable; }
  Arg arg(const Rate& rate) const {
    if (rate.state >= 0) return variable(rate.state);
    return rate.value.valid() ? Arg(rate.value) : Arg(rate.number);
  }
  std::function<Values()> body(int number, const Body& code) {
    return [this, number, &code] { return within(kBody - number, code); };
  }

  // The gradient of a loop or branch adds up its terms in an order of the library's, so the oracle is told its bits.
  void note_gradient(std::size_t first, const Value& gradient) {
    const auto& nodes = data().nodes;
    auto is_control = [](const Node& node) { return !node.bodies.empty(); };
    const bool is_through_control =
        std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(first), nodes.end(), is_control);
    building_.notes.gradients.push_back(is_through_control ? static_cast<int>(building_.outputs.size()) : -1);
    if (is_through_control) output("gradient" + std::to_string(building_.notes.gradients.size()), gradient);
  }

  // What an optimizer computes before it adds it up and scales it.
  Value gradient_of(std::size_t first, const Variable& parameter, int accumulate) const {
    const auto& nodes = data().nodes;
    ValueRef gradient;
    const ValueRef read = data().use(parameter, Where::current()).read;
    for (std::size_t id = first; id < nodes.size(); ++id) {
      if (!writes_variables(*nodes[id].op, nodes[id].inputs.size())) continue;
      for (std::size_t i = kFirstTensor; i + 1 < nodes[id].inputs.size(); ++i)
        if (nodes[id].inputs[i] == read) gradient = nodes[id].inputs[i + 1];
    }
    if (accumulate > 1) gradient = nodes[at(gradient.node)].inputs[at(2 + 2 * gradient.output)];
    return data().value(gradient);
  }

  Building& building_;
};

}  // namespace

std::unique_ptr<Calls> library_calls(Building& building) { return std::make_unique<LibraryCalls>(building); }

}  // namespace graphsink::testing
