// Comm, and what ranks do beside the steps of a program.
#include <cstring>
#include <string>

#include "graphsink/ranks.h"
#include "ranks/rank_group.h"

namespace graphsink {
namespace {

// A group of one, which exchanges with itself.
class OneRank : public RankBackend {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_to_all(Channel, const void* in, void* out, std::size_t bytes) override { copy(out, in, bytes); }
  void all_gather(Channel, const void* in, void* out, std::size_t bytes) override { copy(out, in, bytes); }
  void broadcast(Channel, void*, std::size_t, int) override {}
  void send_receive(Channel, const void* in, int, void* out, int from, std::size_t bytes) override {
    if (from == 0) copy(out, in, bytes);
  }
  bool is_done() override { return true; }
  std::vector<std::optional<std::string>> give_up(const std::string&, double) override { return {std::nullopt}; }
  std::unique_ptr<RankBackend> split(int, int, const std::vector<int>&) override { return std::make_unique<OneRank>(); }

 private:
  static void copy(void* out, const void* in, std::size_t bytes) {
    if (bytes > 0) std::memcpy(out, in, bytes);
  }
};

std::string described(std::span<const Variable> variables) {
  std::string text;
  for (const Variable& variable : variables)
    text += (text.empty() ? "" : ", ") + variable.name() + " " + to_string(variable.type());
  return text;
}

}  // namespace

int Comm::rank() const noexcept { return group_->rank(); }
int Comm::size() const noexcept { return group_->size(); }

void Comm::barrier(Where where) const { group_->all_texts("", {"barrier", where}); }

Comm one_rank() { return Comm(std::make_shared<RankGroup>(std::make_unique<OneRank>(), 1)); }

void broadcast_variables(std::span<const Variable> variables, const Comm& comm, int root, Where where) {
  const Exchange exchange{"broadcast_variables", where};
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("broadcast_variables", where, problem, remedy);
  };
  if (root < 0 || root >= comm.size())
    refuse("there is no rank " + std::to_string(root) + " in a group of " + std::to_string(comm.size()),
           "give a root from 0 to " + std::to_string(comm.size() - 1));
  const std::vector<std::string> all = comm.group()->all_texts(described(variables), exchange);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      refuse("rank 0 has " + all[0] + ", and rank " + std::to_string(rank) + " has " + all[rank],
             "pass the same Variables on all ranks, without those of divided_variable()");
  for (Variable variable : variables) {
    Tensor value = variable.read();
    comm.group()->broadcast_parts(value.data(), value.bytes(), root, exchange);
    if (comm.rank() != root) variable.write(value);
  }
}

}  // namespace graphsink
