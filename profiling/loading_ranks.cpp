#include "profiling/loading_ranks.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "graphsink/op.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

struct NoteAttrs {
  std::shared_ptr<Exchanges> times;
};

void infer_same(InferArgs& a) {
  for (int i = 0; i < a.inputs(); ++i) a.out(a.in(i).dtype, a.in(i).shape);
}

void note_body(const CpuArgs& a) {
  a.attrs<NoteAttrs>().times->push_back(Clock::now());
  for (int i = 0; i < a.inputs(); ++i) std::memcpy(a.out<void>(i), a.in<void>(i), a.in_type(i).bytes());
}

// Passes its operands on, and notes when they are all there.
const OpDef note_op{.name = "note_time", .infer = infer_same, .traits = {.host_effect = true}, .bodies = {note_body}};

std::vector<Value> noted(const std::vector<Value>& values, const std::shared_ptr<Exchanges>& times) {
  return emit(note_op, std::vector<Arg>(values.begin(), values.end()), NoteAttrs{times});
}

}  // namespace

models::Sharing timed_sharing(const Comm& comm, std::shared_ptr<Exchanges> times) {
  return {[comm, times = std::move(times)](const auto& options, const auto& groups, const auto& gradients) {
            return apply(options, groups, noted(average(noted(gradients, times), comm), times));
          },
          {}};
}

json lanes_of_ranks(const Comm& comm, const json& lanes) {
  if (comm.size() == 1) return lanes;
  const std::string mine = lanes.dump();
  Eager eager(cpu());
  Tensor length(i64, {1});
  length.as<std::int64_t>()[0] = static_cast<std::int64_t>(mine.size());
  const Tensor lengths = Eager::read(all_gather(eager.tensor(length), comm));
  std::int64_t most = 0;
  for (int rank = 0; rank < comm.size(); ++rank)
    most = std::max(most, lengths.as<std::int64_t>()[static_cast<std::size_t>(rank)]);
  Tensor text(u8, {most});
  std::fill_n(text.as<std::uint8_t>().begin(), most, std::uint8_t{' '});
  std::copy(mine.begin(), mine.end(), text.as<std::uint8_t>().begin());
  const Tensor texts = Eager::read(all_gather(eager.tensor(text), comm));
  json all = json::array();
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto first = texts.as<std::uint8_t>().begin() + rank * most;
    for (json& lane : json::parse(std::string(first, first + most))) {
      lane["name"] = "rank " + std::to_string(rank) + ": " + lane["name"].get<std::string>();
      all.push_back(std::move(lane));
    }
  }
  return all;
}

}  // namespace graphsink::bench
