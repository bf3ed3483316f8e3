// The op by which a rank sends a tensor to one rank, and receives one from another.
#include <cstring>
#include <string>
#include <utility>

#include "base/at.h"
#include "graphsink/ranks.h"
#include "ranks/nccl_form.h"

namespace graphsink {

int target_of(const std::vector<int>& sources, int rank) {
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i] == rank) return static_cast<int>(i);
  return -1;
}

namespace {

void infer_send_receive(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<CollectiveAttrs>();
  const int ranks = attrs.group->size();
  if (attrs.sources.size() != at(ranks))
    a.fail(std::to_string(attrs.sources.size()) + " sources for " + std::to_string(ranks) + " ranks",
           "give the source of each rank, or -1");
  for (std::size_t i = 0; i < attrs.sources.size(); ++i) {
    const int source = attrs.sources[i];
    if (source < -1 || source >= ranks)
      a.fail("there is no rank " + std::to_string(source) + " in a group of " + std::to_string(ranks),
             "give a source from 0 to " + std::to_string(ranks - 1) + ", or -1");
    if (source >= 0 && target_of(attrs.sources, source) != static_cast<int>(i))
      a.fail("rank " + std::to_string(source) + " is the source of several ranks", "use broadcast()");
  }
  a.out(a.in(0).dtype, a.in(0).shape);
}

void send_receive_body(const CpuArgs& a) {
  const std::size_t bytes = a.in_type(0).bytes();
  if (is_dead(a)) {  // the result only has to be some tensor
    if (bytes > 0) std::memcpy(a.out<void>(0), a.in<void>(0), bytes);
    return;
  }
  compare_calls(a);
  const auto& attrs = a.attrs<CollectiveAttrs>();
  RankGroup& group = *attrs.group;
  const int from = attrs.sources[at(group.rank())];
  if (from < 0 && bytes > 0) std::memset(a.out<void>(0), 0, bytes);
  group.send_receive(a.in<void>(0), target_of(attrs.sources, group.rank()), a.out<void>(0), from, bytes,
                     exchange_of(a));
}

std::vector<Value> send_receive_grad(const GradArgs& g);

constexpr OpDef kSendReceive{.name = "send_receive",
                             .infer = infer_send_receive,
                             .traits = {.host_effect = true, .agree = &agree_op, .call_cost = "a wait for two ranks"},
                             .prepare = prepare_exchange,
                             .bodies = {send_receive_body},
                             .grad = on_ranks<send_receive_grad>};

#ifdef GRAPHSINK_CUDA
constexpr OpDef kNcclSendReceive = with_nccl<nccl_send_receive>(kSendReceive);
const OpDef& form_for(const RankGroup& group) { return group.nccl() == nullptr ? kSendReceive : kNcclSendReceive; }
#else
const OpDef& form_for(const RankGroup&) { return kSendReceive; }
#endif

// Gradients go the other way.
std::vector<Value> send_receive_grad(const GradArgs& g) {
  auto attrs = g.attrs.as<CollectiveAttrs>();
  const std::vector<int> sources = attrs.sources;
  for (std::size_t i = 0; i < sources.size(); ++i) attrs.sources[i] = target_of(sources, static_cast<int>(i));
  const OpDef& form = form_for(*attrs.group);
  return emit(form, {Arg(g.grads[0], g.where)}, std::move(attrs));
}

}  // namespace

Value send_receive(Arg x, const Comm& comm, const std::vector<int>& sources) {
  const auto* value = std::get_if<Value>(&x.content());
  if (comm.size() == 1 && value != nullptr && value->valid()) {
    if (sources == std::vector{0}) return *value;
    if (sources == std::vector{-1}) {  // zeros
      const Arg differs(not_equal(x, x), x.where()), equals(equal(x, x), x.where());
      return cast(Arg(logical_and(differs, equals), x.where()), value->dtype());
    }
  }
  CollectiveAttrs attrs{comm.group()};
  attrs.sources = sources;
  return emit_on_ranks(form_for(*comm.group()), x, std::move(attrs));
}

}  // namespace graphsink
