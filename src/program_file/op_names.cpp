#include "base/printable.h"
#include "program_file/graph_form.h"

namespace graphsink {
namespace {

// Sources, whose attributes have forms of their own, and control flow, whose attributes are its bodies.
constexpr const OpDef* kOpsOfGraphs[] = {&input_op,        &feed_op,      &constant_op, &variable_op, &step_op,
                                         &random_state_op, &parameter_op, &if_op,       &switch_op,   &while_op};

}  // namespace

OpNames::OpNames(std::span<const FileOp> users, const char* call, const Where& where) : ops_(built_in_ops()) {
  for (const OpDef* op : kOpsOfGraphs) ops_.push_back(file_op(*op));
  ops_.insert(ops_.end(), users.begin(), users.end());
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const FileOp& entry = ops_[i];
    if (entry.op == nullptr) throw Error(call, where, "an entry of `ops` has no op", "give each an OpDef");
    const std::string_view name = entry.name_in_file();
    if (!by_name_.emplace(std::pair(name, std::int64_t{entry.version}), i).second) {
      throw Error(call, where,
                  "two ops are named \"" + shortened(name) + "\" in version " + std::to_string(entry.version),
                  "give the one in `ops` another name, or another version");
    }
    auto [known, is_new] = by_op_.emplace(entry.op, i);
    if (!is_new && ops_[known->second].version < entry.version) known->second = i;
  }
}

const FileOp* OpNames::find(const OpDef& op) const {
  const auto found = by_op_.find(&op);
  return found == by_op_.end() ? nullptr : &ops_[found->second];
}

const FileOp* OpNames::find(std::string_view name, std::int64_t version) const {
  const auto found = by_name_.find({name, version});
  return found == by_name_.end() ? nullptr : &ops_[found->second];
}

std::int64_t OpNames::newest(std::string_view name) const {
  std::int64_t newest = 0;
  for (auto entry = by_name_.lower_bound({name, 0}); entry != by_name_.end() && entry->first.first == name; ++entry)
    newest = entry->first.second;
  return newest;
}

}  // namespace graphsink
