// Decides which nodes run on the host or on a further device. The placements that the user asks for come first, then
// which bodies an op has, then the fewest bytes to copy between devices.
#include <algorithm>
#include <map>
#include <set>

#include "base/at.h"
#include "passes/min_cut.h"
#include "passes/passes.h"
#include "passes/plan_queries.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

// The side of a node in a choice between the target (here) and the host or one further device (there).
enum class Side : std::uint8_t { here, there, either };

// Where the results of the graph are wanted: on the target, but for what is assigned to Variables of further devices.
class Results {
 public:
  // Once the Variables have their devices.
  void find(const PlannerIr& ir) {
    for (const VariableUse& use : ir.variables)
      if (use.assigned.node >= 0 && ir.node(use.read).device > 0) elsewhere_[use.assigned];
    if (elsewhere_.empty()) return;
    auto add = [&](ValueRef v, int device) {
      if (auto found = elsewhere_.find(v); found != elsewhere_.end()) found->second.insert(device);
    };
    for (const VariableUse& use : ir.variables)
      if (use.assigned.node >= 0) add(use.assigned, ir.node(use.read).device);
    for (const IrRegion& region : ir.regions) PlannerIr::for_each_result_of(region, [&](ValueRef v) { add(v, 0); });
    for (const NamedValue& record : ir.records) add(record.value, 0);
    for (const NamedValue& stop : ir.stops) add(stop.value, 0);
    for (const IrOutput& output : ir.outputs) add(output.value, 0);
  }

  // Takes a value that is a result.
  const std::set<int>& devices_of(ValueRef v) const {
    const auto found = elsewhere_.find(v);
    return found == elsewhere_.end() ? on_target_ : found->second;
  }

 private:
  std::set<int> on_target_{0};
  std::map<ValueRef, std::set<int>> elsewhere_;
};

class Placing {
 public:
  Placing(PlannerIr& ir, const PlanOptions& options, Plan& plan)
      : ir_(ir), options_(options), plan_(plan), side_(ir.nodes.size(), Side::here) {}

  void run() {
    if (options_.default_placement.device != 0)
      throw Error("compile", Where(), "default_placement names one of the further devices",
                  "give it to single ops, and use on_cpu, on_device or nothing as the default");
    if (plan_.target().separate_memory) place_variables();
    bool has_host = false, has_free = false;
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      if (!runs(id)) continue;
      side_[id] = side_of(ir_.nodes[id]);
      has_host = has_host || (side_[id] == Side::there && !is_collective(ir_.nodes[id]));
      has_free = has_free || side_[id] == Side::either;
    }
    std::vector<bool> moved = has_host && has_free ? cheapest() : std::vector<bool>(ir_.nodes.size());
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      ir_.nodes[id].is_on_host = side_[id] == Side::there || moved[id];
      if (ir_.nodes[id].is_on_host) plan_.reasons.push_back(reason(ir_.nodes[id]));
    }
    if (plan_.target().separate_memory) place_on_further_devices();
  }

 private:
  bool runs(std::size_t id) const {
    const IrNode& node = ir_.nodes[id];
    return node.is_live && !is_source(*node.op) && node.bodies.empty();
  }

  // --- Variables, and the ops that commit them

  void place_variables() {
    for (IrNode& node : ir_.nodes) {
      if (!node.is_live || node.op != &variable_op) continue;
      const Variable& variable = node.attrs.as<VariableAttrs>().variable;
      node.device = home_device(variable, plan_.target());
      if (node.device > further_devices())
        throw Error(
            "Variable \"" + variable.name() + "\"", node.where,
            "has the placement on_device(" + std::to_string(node.device) + "), but the program has " + known_devices(),
            "name it in CompileOptions::further_devices, or give the Variable no placement");
    }
    results_.find(ir_);
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      if (runs(id) && writes_variables(*ir_.nodes[id].op, ir_.nodes[id].inputs.size())) place_commit(ir_.nodes[id]);
  }

  // The op runs where the Variables live that it writes.
  void place_commit(IrNode& node) const {
    const Variable* first = nullptr;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.access(i) != Access::write) continue;
      const IrNode& source = ir_.node(node.inputs[i]);
      const Variable& variable = source.attrs.as<VariableAttrs>().variable;
      if (first == nullptr) node.device = source.device;
      if (node.device != source.device)
        throw Error(std::string(node.op->name), node.where,
                    "commits \"" + first->name() + "\", which lives on " + device_name(plan_, node.device) +
                        ", and \"" + variable.name() + "\", which lives on " + device_name(plan_, source.device),
                    "give the Variables one placement, or write them by two ops");
      first = first ? first : &variable;
    }
    const Placement& asked = node.placement;
    if (asked.kind == Placement::Kind::device && asked.device != node.device)
      throw Error(std::string(node.op->name), node.where,
                  "has the placement on_device(" + std::to_string(asked.device) +
                      "), but commits Variables, which live on on_device(" + std::to_string(node.device) + ")",
                  "remove the placement, or give the Variables the same");
    if (node.device > 0) require_body(node, node.device);
  }

  int further_devices() const { return static_cast<int>(plan_.devices.size()) - 1; }
  std::string known_devices() const {
    const int count = further_devices();
    return count == 0 ? "no further device" : "only " + std::to_string(count) + " further devices";
  }

  void require_body(const IrNode& node, int device) const {
    if (has_device_body(*node.op, device)) return;
    throw Error(std::string(node.op->name), node.where,
                "has the placement on_device(" + std::to_string(device) + "), but no body for this device",
                "give its OpDef a CUDA body, or remove the placement");
  }

  // Collectives on the host use it as a transport only: they should not draw their neighbours there.
  static bool is_collective(const IrNode& node) { return node.op->traits.agree != nullptr; }

  bool has_device_body(const OpDef& op, int device = 0) const {
    const Target& target = plan_.devices[at(device)].target;
    return body_for(op, target.id.kind, target.sm) != nullptr;
  }

  Placement::Kind wanted(const IrNode& node) const {
    return (node.placement == Placement{} ? options_.default_placement : node.placement).kind;
  }

  Side side_of(const IrNode& node) const {
    const OpDef& op = *node.op;
    std::string name(op.name);
    bool has_cpu = body_for(op, DeviceKind::cpu) != nullptr;
    if (!plan_.target().separate_memory) {
      if (has_cpu) return Side::here;
      throw Error(name, node.where, "has no CPU body", "give its OpDef a CPU body, or compile for a GPU");
    }
    bool commits = writes_variables(op, node.inputs.size());
    if (node.placement.kind == Placement::Kind::device && node.placement.device != 0) {
      if (!commits) require_further_device(node);
      return Side::here;  // not on the host; place_on_further_devices() chooses the device
    }
    bool has_cuda = has_device_body(op);
    if (node.placement.kind == Placement::Kind::cpu && (!has_cpu || commits)) {
      throw Error(name, node.where,
                  commits ? "has the placement on_cpu, but commits Variables, which live on the device"
                          : "has the placement on_cpu, but no CPU body",
                  commits ? "remove the placement" : "give its OpDef a CPU body, or remove the placement");
    }
    if (node.placement.kind == Placement::Kind::device && !has_cuda)
      throw Error(name, node.where, "has the placement on_device, but no body for this device",
                  "give its OpDef a CUDA body, or remove the placement");
    if (!has_cuda && !has_cpu)
      throw Error(name, node.where, "has no body for this device", "give its OpDef a CPU body or a CUDA body");
    if (!has_cuda && commits)
      throw Error(name, node.where, "commits Variables and has no CUDA body", "give its OpDef a CUDA body");
    if (!has_cuda) return Side::there;
    if (!has_cpu || commits) return Side::here;
    // All ranks must exchange values in the same way, whatever is cheapest for one.
    if (is_collective(node)) return wanted(node) == Placement::Kind::cpu ? Side::there : Side::here;
    if (wanted(node) == Placement::Kind::cpu) return Side::there;
    // The body of a conditional node must not contain host nodes. So every node that can run on the device stays there.
    return wanted(node) == Placement::Kind::device || node.region != 0 ? Side::here : Side::either;
  }

  void require_further_device(const IrNode& node) const {
    std::string name(node.op->name), placement = "on_device(" + std::to_string(node.placement.device) + ")";
    if (node.placement.device < 0 || node.placement.device > further_devices())
      throw Error(name, node.where, "has the placement " + placement + ", but the program has " + known_devices(),
                  "name it in CompileOptions::further_devices, or remove the placement");
    if (node.region != 0)
      throw Error(name, node.where, "has the placement " + placement + ", but a loop or branch stays on one device",
                  "remove the placement, or move it out of the loop or branch");
    require_body(node, node.placement.device);
  }

  // Gives nodes with a placement their further device; Variables, and what commits them, have it already. Other nodes
  // move there from the target if fewer bytes then cross; this is decided for one device after the other. With one
  // further device the result is minimal. With more it is close to minimal: these are the isolating cuts of Dahlhaus et
  // al., "The Complexity of Multiterminal Cuts", 1994.
  void place_on_further_devices() {
    for (int device = 1; device < static_cast<int>(plan_.devices.size()); ++device) {
      bool is_used = false;
      for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
        const IrNode& node = ir_.nodes[id];
        side_[id] = node.is_live && node.device == device ? Side::there : Side::here;
        is_used = is_used || side_[id] == Side::there;
        if (!runs(id) || node.is_on_host || node.device != 0) continue;
        const Placement& placement = node.placement;
        if (placement.kind == Placement::Kind::device && placement.device == device) side_[id] = Side::there;
        bool is_free = placement.kind == Placement::Kind::anywhere && wanted(node) == Placement::Kind::anywhere &&
                       node.region == 0 && !writes_variables(*node.op, node.inputs.size()) && !is_collective(node) &&
                       has_device_body(*node.op, device);
        if (is_free) side_[id] = Side::either;
        is_used = is_used || side_[id] == Side::there;
      }
      if (!is_used) continue;
      std::vector<bool> moved = cheapest(device);
      for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
        if (side_[id] == Side::there || moved[id]) ir_.nodes[id].device = device;
    }
  }

  // The cost is added later by add_costs(), when the copies are known.
  Reason reason(const IrNode& node) const {
    auto because = [&](const char* why, const char* remedy) {
      return Reason{std::string(node.op->name) + " runs on the host", node.where, why, "", remedy, node.origin};
    };
    if (is_collective(node) && !has_device_body(*node.op))
      return because("ranks exchange values by way of the host", "exchange small values together");
    if (!has_device_body(*node.op)) return because("it has only a CPU body", "give its OpDef a CUDA body");
    if (node.placement.kind == Placement::Kind::cpu) return because("asked for by on_cpu", "remove the placement");
    if (options_.default_placement == on_cpu)
      return because("asked for by default_placement", "give it the placement on_device");
    return because("its neighbours do, and so fewer bytes cross", "give it the placement on_device");
  }

  // Returns the nodes that can run on either side and should run `there`, so that the fewest bytes cross. Each value
  // that crosses counts once for each direction. Among equal choices, the one with the fewest nodes `there` is taken.
  // Values that no step changes count as well, although they are copied only after they were written: if the weights of
  // a model were free, one op on the host could move the whole model to the host.
  //
  // The method is a minimum cut, described here for the host: between device (source) and host (sink). A value of
  // `bytes` bytes with the producer p and users c gets two vertices. The first means "also on the host", and each c on
  // the host pulls it to the host side. The second means "also on the device", and each c on the device pulls it to the
  // device side.
  std::vector<bool> cheapest(int there = 0) {
    MinCut cut;
    std::vector<int> vertex(ir_.nodes.size());
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      const Side side = is_collective(ir_.nodes[id]) ? Side::here : side_[id];
      vertex[id] = side == Side::either ? cut.add_vertex() : side == Side::here ? MinCut::kSource : MinCut::kSink;
    }
    const Uses uses(ir_);
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      if (!ir_.nodes[id].is_live || ir_.nodes[id].op == &constant_op) continue;  // constants exist on both sides
      for (std::size_t j = 0; j < ir_.nodes[id].outputs.size(); ++j) {
        auto bytes = static_cast<std::int64_t>(ir_.nodes[id].outputs[j].bytes());
        add_value(cut, vertex[id], users_of(uses, {static_cast<int>(id), static_cast<int>(j)}, there), vertex, bytes);
      }
    }
    cut.solve();
    std::vector<bool> moved(ir_.nodes.size());
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      moved[id] = side_[id] == Side::either && cut.is_with_sink(vertex[id]);
    return moved;
  }

  static void add_value(MinCut& cut, int producer, const std::vector<int>& users, const std::vector<int>& vertex,
                        std::int64_t bytes) {
    auto vertex_of = [&](int user) {
      return user == kDevice ? MinCut::kSource : user == kThere ? MinCut::kSink : vertex[at(user)];
    };
    bool is_settled = std::all_of(users.begin(), users.end(), [&](int user) {
      return vertex_of(user) == producer && producer <= MinCut::kSink;  // all of them are fixed to one side
    });
    if (is_settled) return;
    int on_host = cut.add_vertex(), on_device = cut.add_vertex();
    cut.add_edge(producer, on_host, bytes);
    cut.add_edge(on_device, producer, bytes);
    for (int user : users) {
      cut.add_edge(on_host, vertex_of(user), MinCut::kInfinite);
      cut.add_edge(vertex_of(user), on_device, MinCut::kInfinite);
    }
  }

  // Users that are not nodes: a record, an output, a Variable or a predicate on the target, and a Variable of the
  // further device in question.
  static constexpr int kDevice = -1, kThere = -2;

  // The nodes that use the value, kDevice and kThere. `there`: the further device in question; 0 for the host.
  std::vector<int> users_of(const Uses& uses, ValueRef v, int there) const {
    std::vector<int> users;
    for (Use use : uses.of(v)) {
      const IrNode& node = ir_.nodes[at(use.node)];
      if (!use.is_of_body() && !node.reads(at(use.operand))) continue;
      const bool enters_a_body = node.region != ir_.node(v).region;  // values enter a body through the device
      if (enters_a_body || !node.bodies.empty()) users.push_back(kDevice);
      if (node.bodies.empty()) users.push_back(use.node);
    }
    if (uses.is_result(v))
      for (int device : results_.devices_of(v)) users.push_back(there > 0 && device == there ? kThere : kDevice);
    return users;
  }

  PlannerIr& ir_;
  const PlanOptions& options_;
  Plan& plan_;
  std::vector<Side> side_;
  Results results_;
};

}  // namespace

void place(PlannerIr& ir, const PlanOptions& options, Plan& plan) { Placing(ir, options, plan).run(); }

}  // namespace graphsink
