#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "graphsink/grad.h"
#include "ir/graph_data.h"
#include "ir/plan.h"
#include "kernels/movement/nonzero.h"
#include "kernels/optim/optimizer_ops.h"
#include "places.h"
#include "run_op.h"

namespace graphsink::testing {
namespace {

// One element of a parameter, as the header of the optimizers says, in the float type S.
template <class S>
struct Formula {
  const Update& options;
  S lr, weight_decay, correction1, correction2;

  // Powers of beta1 and beta2.
  Formula(const Update& update, double rate, double decay, double power1, double power2)
      : options(update),
        lr(static_cast<S>(rate)),
        weight_decay(static_cast<S>(decay)),
        correction1(static_cast<S>(1 - power1)),
        correction2(static_cast<S>(1 - power2)) {}

  void apply(S& p, S g, S* first, S* second) const {
    if (options.is_adamw) {
      const auto beta1 = static_cast<S>(0.9), beta2 = static_cast<S>(0.999), eps = static_cast<S>(1e-8);
      *first = beta1 * *first + static_cast<S>(1 - 0.9) * g;
      *second = beta2 * *second + static_cast<S>(1 - 0.999) * (g * g);
      const S m = *first / correction1, v = *second / correction2;
      p -= lr * (m / (std::sqrt(v) + eps) + weight_decay * p);
    } else if (options.momentum == 0) {
      p -= lr * (g + weight_decay * p);
    } else {
      const auto momentum = static_cast<S>(options.momentum);
      g += weight_decay * p;
      *first = momentum * *first + g;
      p -= lr * (options.nesterov ? g + momentum * *first : *first);
    }
  }

  // `first` and `second`: of no elements where the optimizer has no such state.
  void apply(Tensor& parameter, const Tensor& gradient, S scale, Tensor* first, Tensor* second) const {
    S none = 0;
    for (std::size_t i = 0; i < parameter.as<S>().size(); ++i) {
      const S g = gradient.as<S>()[i] * scale;
      apply(parameter.as<S>()[i], g, first ? &first->as<S>()[i] : &none, second ? &second->as<S>()[i] : &none);
    }
  }
};

// A result of a branch or a loop is a value of its own, although it has the bits of one that the body was given: a
// gradient for it is none for that one.
void copy_bytes(const CpuArgs& a) { std::memcpy(a.out<std::byte>(0), a.in<std::byte>(0), a.out_type(0).bytes()); }
const OpDef same_op{.name = "same",
                    .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                    .bodies = {copy_bytes},
                    .grad = [](const GradArgs& a) { return std::vector<Value>{a.grads[0]}; }};
Values of_its_own(const Values& values) {
  Values made;
  for (const Value& value : values) made.push_back(emit(same_op, {value})[0]);
  return made;
}

struct StepFailed {
  std::string text;
};

class Oracle : public Calls {
 public:
  Oracle(const Recipe& recipe, const Building& built, const OracleOptions& options)
      : recipe_(recipe),
        built_(built),
        options_(options),
        runner_(options.plan(0).target().id),
        is_cpu_(!runner_.has_own_memory()) {
    block_.seed = options.seed;
    for (const Building::State& state : built.states) variables_.push_back(state.initial);
  }

  Expected run() {
    expected_.trace.records.resize(built_.records.size());
    try {
      for (int step = 0; step < recipe_.steps && expected_.problem.empty(); ++step) run_step(step);
    } catch (const StepFailed& failed) {
      expected_.trace.failure = failed.text;
    }
    expected_.trace.variables = variables_;
    expected_.trace.steps = block_.step;
    return std::move(expected_);
  }

  // --- the calls

  Value value(int state) override {
    auto found = assigned_.find(state);
    return found == assigned_.end() ? making_->states[at(state)].at_start : found->second;
  }
  void assign(int state, const Value& value) override { assigned_[state] = value; }

  Value if_(const Value& predicate, const Body& then_body, const Body& else_body) override {
    return of_its_own(holds(predicate) ? within(kBody, then_body) : within(kBody - 1, else_body))[0];
  }
  Value switch_(const Value& index, const std::vector<Body>& bodies) override {
    const auto number = static_cast<std::int64_t>(computed(index).at(0));
    if (number < 0 || number >= static_cast<std::int64_t>(bodies.size()))
      throw StepFailed{to_string(StepError::body, number)};
    const auto chosen = static_cast<int>(number);
    return of_its_own(within(kBody - chosen, bodies.at(at(chosen))))[0];
  }

  Values while_(const Values& init, const Condition& condition, const Step& body,
                const WhileOptions& options) override {
    Values state = of_its_own(init);
    const int front = built_.notes.fronts.at(path_);
    bool goes_on = within(front, [&] { return holds(condition(state)); });
    loops_.insert(loops_.begin(), 0);
    for (; goes_on; ++loops_[0]) {
      if (options.max_iterations != 0 && loops_[0] == options.max_iterations)
        throw StepFailed{to_string(StepError::iterations, options.max_iterations)};
      state = of_its_own(within(kBody, [&] { return body(state); }));
      goes_on = within(kInBody, [&] { return holds(condition(state)); });
    }
    loops_.erase(loops_.begin());
    return state;
  }

  Scan scan(const Values& init, const Values& inputs, const Slice& body) override {
    Scan result{of_its_own(init), {}};
    std::vector<std::vector<Arg>> kept;
    loops_.insert(loops_.begin(), 0);
    for (; loops_[0] < inputs[0].shape()[0]; ++loops_[0]) {
      Values slices;
      for (const Value& input : inputs) {
        Shape shape;
        for (int d = 1; d < input.shape().rank(); ++d) shape.push_back(input.shape()[d]);
        slices.push_back(reshape(slice(input, {loops_[0]}, {loops_[0] + 1}), shape));
      }
      Scan next = within(kBody, [&] { return body(result.state, slices); });
      result.state = of_its_own(next.state);
      kept.resize(next.outputs.size());
      for (std::size_t i = 0; i < kept.size(); ++i) kept[i].emplace_back(next.outputs[i]);
    }
    run_nodes();
    loops_.erase(loops_.begin());
    for (const auto& values : kept) result.outputs.push_back(stack(values, 0));
    return result;
  }

  Value grad(const Value& loss, const Value& wrt) override { return gradients(loss, {wrt})[0]; }

  void update(const Update& update) override {
    const auto [begin, end] = built_.notes.optimizer_states.at(optimizers_++);
    int state = begin;
    for (int known = begin; known < end; ++known) making_->states.push_back(built_.states[at(known)]);
    std::vector<Arg> parameters;
    for (const Update::Group& group : update.groups)
      for (int parameter : group.parameters) parameters.emplace_back(making_->states[at(parameter)].at_start);
    Values made = gradients(update.loss, parameters);
    std::vector<Tensor> sums;
    for (const Value& gradient : made) {
      sums.push_back(wide(computed(gradient)));
      if (update.accumulate > 1) add_up(state++, sums.back(), update.accumulate);
    }
    float scale = 1;
    bool applies = true;
    int number = block_.step + 1;
    if (update.accumulate > 1) {
      number = variables_[at(state)].as<std::int32_t>()[0] + 1;
      applies = block_.step % update.accumulate == update.accumulate - 1;
      if (applies) next_[state] = Tensor::scalar(number);
      ++state;
    }
    if (update.accumulate > 1 || update.clip_norm > 0) scale = 1.0f / static_cast<float>(update.accumulate);
    if (update.clip_norm > 0) {
      const float mean_norm = norm(update.accumulate > 1 ? sums : tensors(made)) * scale;
      const auto clip = static_cast<float>(update.clip_norm);
      if (mean_norm > clip) scale *= clip / mean_norm;
    }
    std::size_t gradient = 0;
    int rates = state;  // behind the states of all parameters
    for (const Update::Group& group : update.groups) rates += static_cast<int>(states_of(update, group));
    const bool is_number = !update.lr.value.valid() && update.lr.state < 0;
    int group_rates = rates + (is_number ? 1 : 0);
    for (const Update::Group& group : update.groups) {
      const Rate& lr = group.lr ? *group.lr : update.lr;
      const bool is_number_of_group = group.lr && !lr.value.valid() && lr.state < 0;
      const double rate = rate_of(lr, is_number_of_group ? group_rates++ : rates);
      update_group(update, group, std::span(sums).subspan(gradient), {rate, scale, number, applies}, state);
      gradient += group.parameters.size();
    }
  }

  void commit(int state, const Value& rate, const Value& other) override {
    const Tensor factor = computed(rate), x = computed(other);
    Tensor result = variables_[at(state)];
    const FlushDenormals denormals(is_cpu_);
    auto compute = [&]<class S>(S) {
      for (std::size_t i = 0; i < x.as<S>().size(); ++i)
        result.as<S>()[i] -= static_cast<S>(factor.at(0)) * (x.as<S>()[i] + S(0) * result.as<S>()[i]);
    };
    x.dtype() == f64 ? compute(double{}) : compute(float{});
    next_[state] = std::move(result);
  }

  void output(const std::string& name, const Value& value) override {
    making_->outputs.push_back(name);
    outputs_.push_back(value);
  }
  void record(const std::string&, const Value& value) override { records_.push_back(value); }
  bool is_in_loop() const override { return !loops_.empty(); }
  bool decide(bool) override { return built_.notes.decisions.at(decisions_++); }

 protected:
  void enter() override {
    run_nodes();
    auto found = built_.notes.places.find(path_);
    if (found == built_.notes.places.end()) throw Error("oracle", {}, "a stretch that the graph does not have", "");
    here_ = found->second;
    const auto end = path_.end() - (path_.back() == kEnd ? 2 : 0);
    is_hidden_ = std::find(path_.begin(), end, kHidden) != end;
  }

 private:
  void run_step(int step) {
    block_.step = step;
    if (step == 0 || step == kRewrittenAt || built_.finds_sizes()) places_.emplace(graph_built(), options_.plan(step));
    for (std::size_t i = 0; i < built_.states.size(); ++i)
      if (step == kRewrittenAt && built_.states[i].is_frozen()) variables_[i] = built_.states[i].rewritten();
    graph_ = Graph();
    values_.clear();
    done_ = 0;
    assigned_.clear();
    next_.clear();
    outputs_.clear();
    records_.clear();
    loops_.clear();
    decisions_ = gradients_ = optimizers_ = 0;
    path_.clear();
    Building making(recipe_, *this, graph_);
    making_ = &making;
    making.make_all(recipe_);
    run_nodes();
    for (const Value& output : outputs_) expected_.trace.outputs[step + 1].push_back(computed(output));
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const Tensor recorded = computed(records_[i]);
      for (std::int64_t k = 0; k < recorded.shape().size(); ++k) expected_.trace.records[i].push_back(recorded.at(k));
    }
    for (const auto& [state, assigned] : assigned_) next_[state] = computed(assigned);
    for (auto& [state, tensor] : next_) variables_[at(state)] = std::move(tensor);
    auto& effects = expected_.trace.effects;
    effects.insert(effects.end(), making.effects->entries.begin(), making.effects->entries.end());
    block_.step = step + 1;
  }

  // --- optimizers

  struct Controls {
    double rate;
    float scale;
    int number;
    bool applies;
  };

  std::size_t states_of(const Update& update, const Update::Group& group) const {
    std::size_t count = 0;
    for (int parameter : group.parameters)
      count += moments(update) + (is_half(variables_[at(parameter)].dtype()) ? 1 : 0);
    return count;
  }
  static std::size_t moments(const Update& update) { return update.is_adamw ? 2 : update.momentum > 0 ? 1 : 0; }

  double rate_of(const Rate& rate, int number_state) {
    if (rate.value.valid()) return computed(rate.value).at(0);
    return rate.state >= 0 ? computed(value(rate.state)).at(0) : variables_[at(number_state)].at(0);
  }

  static Tensor wide(const Tensor& x) { return is_half(x.dtype()) ? x.to(f32) : x; }
  std::vector<Tensor> tensors(const Values& values) {
    std::vector<Tensor> result;
    for (const Value& v : values) result.push_back(computed(v));
    return result;
  }

  void add_up(int state, Tensor& gradient, int steps) {
    const FlushDenormals denormals(is_cpu_);
    auto compute = [&]<class S>(S) {
      for (std::size_t i = 0; i < gradient.as<S>().size(); ++i) {
        const S before = block_.step % steps == 0 ? S(0) : variables_[at(state)].as<S>()[i];
        gradient.as<S>()[i] = before + gradient.as<S>()[i];
      }
    };
    gradient.dtype() == f64 ? compute(double{}) : compute(float{});
    next_[state] = gradient;
  }

  // A reduction, whose order of terms is that of its op.
  float norm(const std::vector<Tensor>& gradients) {
    OpRunner::Call call{gradient_norm_op, {}, {}, {}, {}};
    for (const Tensor& gradient : gradients) {
      call.inputs.push_back(&gradient);
      call.types.push_back(gradient.type());
    }
    call.types.push_back({f32, {}});
    return runner_.run(call, block_)[0].as<float>()[0];
  }

  // Of the device's, whose last bits are its own.
  double power(double base, int exponent) {
    run_nodes();
    here_.node = static_cast<int>(graph_built().nodes.size());  // it is no node of the graph's
    const Value x = graph_.constant(Tensor::scalar(base));
    return computed(pow(x, static_cast<double>(exponent))).at(0);
  }

  // The parameters of 16 bits come after the others. `state`: their first state; behind it when the function returns.
  void update_group(const Update& update, const Update::Group& group, std::span<const Tensor> gradients,
                    const Controls& controls, int& state) {
    for (bool halves : {false, true}) {
      for (std::size_t i = 0; i < group.parameters.size(); ++i) {
        const int parameter = group.parameters[i];
        if (is_half(variables_[at(parameter)].dtype()) != halves) continue;
        const int first = state, second = state + 1;
        state += static_cast<int>(moments(update));
        const int master = halves ? state++ : parameter;
        if (!controls.applies) continue;
        std::map<int, Tensor> next{{master, variables_[at(master)]}};
        if (moments(update) > 0) next[first] = variables_[at(first)];
        if (moments(update) > 1) next[second] = variables_[at(second)];
        auto moment = [&](int which, std::size_t least) { return moments(update) > least ? &next[which] : nullptr; };
        const double decay = group.weight_decay.value_or(update.weight_decay);
        const FlushDenormals denormals(is_cpu_);
        auto compute = [&]<class S>(S) {
          Formula<S>(update, controls.rate, decay, power(0.9, controls.number), power(0.999, controls.number))
              .apply(next[master], gradients[i], static_cast<S>(controls.scale), moment(first, 0), moment(second, 1));
        };
        next[master].dtype() == f64 ? compute(double{}) : compute(float{});
        if (halves) next_[parameter] = next[master].to(variables_[at(parameter)].dtype());
        for (auto& [number, tensor] : next) next_[number] = std::move(tensor);
      }
    }
  }

  // --- gradients

  Values gradients(const Value& loss, const std::vector<Arg>& wrt) {
    Values made = graphsink::grad(loss, wrt);
    run_nodes();
    for (Value& gradient : made) {
      const int told = built_.notes.gradients.at(gradients_++);
      if (told < 0) continue;
      // The gradient of a loop computes for all of its state what this one, of the iterations that ran, needs for some.
      expected_.all_finite = false;
      const auto found = options_.gradients->find(block_.step + 1);
      if (found == options_.gradients->end()) continue;  // the step has failed
      const Tensor& bits = found->second.at(at(told));
      if (std::string problem = far_apart(computed(gradient), bits, precision_of(gradient)); !problem.empty())
        expected_.problem = built_.outputs[at(told)] + " in step " + std::to_string(block_.step + 1) + ": " + problem;
      gradient = graph_.constant(bits);  // of which there are no further gradients
      output(built_.outputs[at(told)], gradient);
    }
    return made;
  }

  // What sums of other orders may differ by, by the coarsest type that a value was computed in.
  double precision_of(const Value& value) {
    std::set<int> seen{value.node()};
    std::vector<int> open{value.node()};
    double precision = 1e-9;
    while (!open.empty()) {
      const Node& node = data().nodes[at(open.back())];
      open.pop_back();
      for (const TensorType& type : node.outputs)
        if (is_float(type.dtype))
          precision = std::max(precision, type.dtype == f64 ? 1e-9 : type.dtype == f32 ? 1e-3 : 0.1);
      for (ValueRef v : node.inputs)
        if (seen.insert(v.node).second) open.push_back(v.node);
    }
    return precision;
  }

  static std::string far_apart(const Tensor& a, const Tensor& b, double relative) {
    if (!(a.type() == b.type())) return to_string(a.type()) + " and " + to_string(b.type());
    double largest = 0;
    for (std::int64_t i = 0; i < a.shape().size(); ++i) largest = std::max(largest, std::abs(a.at(i)));
    for (std::int64_t i = 0; i < a.shape().size(); ++i) {
      const double x = a.at(i), y = b.at(i);
      const bool is_special = !std::isfinite(x) || !std::isfinite(y);
      if (is_special ? std::isnan(x) != std::isnan(y) : std::abs(x - y) > relative * largest + 1e-30)
        return "element " + std::to_string(i) + " is " + std::to_string(x) + ", the library's " + std::to_string(y);
    }
    return "";
  }

  // --- ops

  GraphData& data() { return *graph_.data(); }
  const GraphData& graph_built() const { return *built_.graph.data(); }
  const Tensor& computed(const Value& v) {
    run_nodes();
    return values_[at(v.node())][at(v.output())];
  }
  const Tensor& computed(ValueRef v) const { return values_[at(v.node)][at(v.output)]; }
  bool holds(const Value& predicate) { return computed(predicate).as<bool>()[0]; }

  // Runs what the recipe has called since the last time.
  void run_nodes() {
    while (done_ < data().nodes.size()) {
      const std::size_t id = done_++;
      values_.resize(data().nodes.size());
      if (!values_[id].empty()) continue;
      if (is_source(*data().nodes[id].op)) {
        values_[id].push_back(source_of(static_cast<int>(id)));
      } else {
        run_node(static_cast<int>(id));
      }
    }
  }

  Tensor source_of(int id) {
    const Node& node = data().nodes[at(id)];
    if (node.op == &constant_op) return *node.attrs.as<ConstantAttrs>().tensor;
    if (node.op == &step_op) return Tensor::scalar(block_.step);
    if (node.op == &random_state_op) return Tensor({block_.step, static_cast<std::int32_t>(block_.seed)});
    if (node.op == &variable_op) {
      const Variable& variable = node.attrs.as<VariableAttrs>().variable;
      auto is_it = [&](const Building::State& state) { return state.variable == variable; };
      const auto found = std::find_if(making_->states.begin(), making_->states.end(), is_it);
      // The maker of a Variable asks for its value before it is one of the states.
      return variables_[static_cast<std::size_t>(found - making_->states.begin())];
    }
    const auto& attrs = node.attrs.as<InputAttrs>();
    if (attrs.is_result_size) return Tensor(u8, {0});  // see set_result_size()
    const int input = attrs.size_of >= 0 ? attrs.size_of : id;
    for (const Building::Fed& fed : making_->fed) {
      if (fed.value.node() != input) continue;
      Tensor given = fed.at(block_.step);
      if (attrs.size_of >= 0) return Tensor::scalar(static_cast<std::int32_t>(given.shape()[attrs.axis]));
      return fed.is_open ? padded(given, attrs.dims[0].bucket) : given;
    }
    throw Error("oracle", {}, "an input that the recipe does not have", "");
  }

  // With rows of zeros up to the size of its bucket.
  static Tensor padded(const Tensor& given, const Bucket& bucket) {
    Shape shape = given.shape();
    shape[0] = bucket.round_up(shape[0]);
    Tensor rows(given.dtype(), shape);
    std::memcpy(rows.data(), given.data(), given.bytes());
    return rows;
  }

  // The rows that the result has, whose number is the size of a hidden input.
  void set_result_size(const Node& node) {
    const Tensor& x = computed(node.inputs[0]);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < x.shape().size(); ++i) count += x.at(i) != 0;
    const auto& attrs = data().nodes[at(node.inputs[1].node)].attrs.as<InputAttrs>();
    values_[at(node.inputs[1].node)][0] = Tensor(u8, {attrs.dims[0].bucket.round_up(count)});
  }

  // The node of the graph that an op of this stretch is: the next one of the op.
  int node_in_graph(const OpDef& op) {
    const auto& nodes = graph_built().nodes;
    for (std::size_t id = at(here_.node); id < nodes.size(); ++id) {
      if (nodes[id].op != &op || nodes[id].region != here_.region) continue;
      here_.node = static_cast<int>(id) + 1;
      return static_cast<int>(id);
    }
    return -1;
  }

  void run_node(int id) {
    const OpDef& op = *data().nodes[at(id)].op;
    const int in_graph = node_in_graph(op);
    if (op.traits.random) draw_like(id, in_graph);
    const Node node = data().nodes[at(id)];
    if (node.op == &nonzero_op && node.inputs.size() == 2) set_result_size(node);
    OpRunner::Call call{op, node.attrs, node.where, {}, {}, in_graph};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const bool is_only_type = access_of(op, i, node.inputs.size()) == Access::shape_only;
      call.types.push_back(computed(node.inputs[i]).type());
      call.inputs.push_back(is_only_type ? nullptr : &computed(node.inputs[i]));
    }
    InferArgs infer(op.name, call.types, node.attrs, node.where);
    infer_outputs(op, infer);
    call.types.insert(call.types.end(), infer.outputs().begin(), infer.outputs().end());
    call.on_host = body_for(op, DeviceKind::cuda) == nullptr || (in_graph >= 0 && places_->on_host(in_graph));
    values_[at(id)] = runner_.run(call, block_);
    for (const Tensor& made : values_[at(id)]) look_at(made);
  }

  // A random op draws from the number of its node in the graph, and from the iterations of the loops around it, the
  // innermost first. Its gradient does so, too, and has the operands of the op.
  void draw_like(int id, int in_graph) {
    for (int iteration : loops_) {
      const Value number = graph_.constant(Tensor::scalar(std::int32_t{iteration}));
      data().nodes[at(id)].inputs.push_back({number.node(), 0});
      values_.resize(data().nodes.size());
      values_.back().push_back(Tensor::scalar(std::int32_t{iteration}));
    }
    data().nodes[at(id)].copy_of = in_graph;
  }

  void look_at(const Tensor& x) {
    if (is_hidden_ || !is_float(x.dtype())) return;
    for (std::int64_t i = 0; i < x.shape().size() && expected_.all_finite; ++i)
      expected_.all_finite = std::isfinite(x.at(i));
  }

  const Recipe& recipe_;
  const Building& built_;
  const OracleOptions& options_;
  OpRunner runner_;
  bool is_cpu_;
  StepState block_;
  Expected expected_;
  std::optional<Places> places_;
  std::vector<Tensor> variables_;  // by their place in Building::states, at the start of the step
  // Of the step.
  Graph graph_;
  Building* making_ = nullptr;
  std::vector<std::vector<Tensor>> values_;  // per node and output
  std::size_t done_ = 0;                     // nodes
  std::map<int, Value> assigned_;
  std::map<int, Tensor> next_;  // what optimizers and ops commit
  Values outputs_, records_;
  std::vector<int> loops_;  // iterations, the innermost first
  std::size_t decisions_ = 0, gradients_ = 0, optimizers_ = 0;
  Notes::Place here_;
  bool is_hidden_ = false;
};

}  // namespace

Expected expect(const Recipe& recipe, const Building& building, const OracleOptions& options) {
  return Oracle(recipe, building, options).run();
}

}  // namespace graphsink::testing
