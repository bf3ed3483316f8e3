#include "ranks/rank_group.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "base/at.h"
#include "ranks/nccl_comm.h"

namespace graphsink {
namespace {

constexpr const char* kRemedy = "end the process, and start all ranks again from a checkpoint";
constexpr std::size_t kPart = std::size_t{1} << 26;  // bytes that broadcast_parts() sends at once

// Between two looks whether the others have come: soon at first, then seldom, because ranks may share processors.
void pause(std::int64_t looks) {
  if (looks < 1000) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(looks < 10000 ? 20 : 200));
}

std::string described(const Exchange& exchange) {
  const std::string place = to_string(exchange.where);
  return std::string(exchange.op) + (place.empty() ? "" : " (" + place + ")") +
         (exchange.doing.empty() ? "" : ", about to " + std::string(exchange.doing));
}

// After " has waited in all_reduce": for whom, and where the others wait. `words` are those of the other ranks.
std::string whom_it_waited_for(const std::string& mine, const std::vector<std::optional<std::string>>& words, int me) {
  std::string silent, here, elsewhere;
  for (int rank = 0; rank < static_cast<int>(words.size()); ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    if (rank == me) continue;
    if (!words[at(rank)]) {
      silent += (silent.empty() ? " for " : ", ") + name;
    } else if (*words[at(rank)] != mine.substr(0, words[at(rank)]->size()) || words[at(rank)]->empty()) {
      elsewhere += "; " + name + " waits in " + *words[at(rank)];
    } else {
      here += (here.empty() ? " for " : ", ") + name;
    }
  }
  if (!silent.empty()) return silent + ", not heard of: ended, or busy with something else" + elsewhere;
  if (!elsewhere.empty() || here.empty()) return elsewhere;
  const bool are_several = here.find(',') != std::string::npos;
  return here + (are_several ? ", which have" : ", which has") + " given up, too, maybe before this rank came";
}

// It precedes texts, so that ranks which exchange texts of different kinds see that.
struct TextHeader {
  char op[40] = {};
  std::uint64_t size = 0;
};

}  // namespace

RankGroup::RankGroup(std::unique_ptr<RankBackend> backend, double patience_s, GroupOrigin origin)
    : backend_(std::move(backend)),
      scratch_(std::make_unique<Scratch>()),
      rank_(backend_->rank()),
      size_(backend_->size()),
      patience_s_(patience_s),
      origin_(std::move(origin)) {}

RankGroup::~RankGroup() {
  // Its end in order would wait for other ranks.
  if (nccl_ && (broken_ || backend_->has_given_up())) nccl_->abort();
  if (!broken_) return;
  static KeptScratch kept;
  Scratch* mine = scratch_.release();
  mine->kept_before = kept.last.load();
  while (!kept.last.compare_exchange_weak(mine->kept_before, mine)) {
  }
}

void RankGroup::give_up(const Exchange& exchange, std::string why) {
  broken_ = std::move(why);
  throw Error(std::string(exchange.op), exchange.where, *broken_, kRemedy, ErrorCode::device_lost);
}

void RankGroup::give_up_nccl(const std::string& waits_in) {
  const std::lock_guard lock(mutex_);
  if (nccl_) nccl_->abort();
  if (broken_) return;
  try {
    broken_ = waited_in(waits_in);
  } catch (const Error& e) {
    broken_ = e.problem();
  }
}

// Tells the other ranks that this one gives up, and returns the problem.
std::string RankGroup::waited_in(const std::string& mine) {
  // Others began to wait a little later, and give up later.
  const auto words = backend_->give_up(mine, std::clamp(patience_s_ / 4, 0.1, 5.0));
  const std::string group = suffix().empty() ? "" : "," + suffix() + ",";
  return "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + group + " has waited " +
         std::to_string(static_cast<std::int64_t>(patience_s_ * 1000)) + " ms in " + mine +
         whom_it_waited_for(mine, words, rank_);
}

void RankGroup::require_whole(const Exchange& exchange) {
  const std::lock_guard lock(mutex_);
  if (broken_) throw Error(std::string(exchange.op), exchange.where, *broken_, kRemedy, ErrorCode::device_lost);
}

// Steps of two programs, or a step and a call beside it, would meet in another order on another rank. Turns see to
// that, except for steps in a graph of the caller's.
void RankGroup::claim(const Exchange& exchange) {
  fork_mark_.require_parent(exchange.op, exchange.where);
  if (broken_) throw Error(std::string(exchange.op), exchange.where, *broken_, kRemedy, ErrorCode::device_lost);
  if (program_ != nullptr && program_ != exchange.program)
    throw Error(std::string(exchange.op), exchange.where, "a step of another program exchanges values in this Comm",
                "sync() the one program before another one uses the Comm, or give each a Comm of its own");
  program_ = exchange.program;
}

std::unique_ptr<RankTurn::Call> RankGroup::turn_of(const Exchange& exchange) {
  if (exchange.program != nullptr || exchange.has_turn) return nullptr;
  return std::make_unique<RankTurn::Call>(turn_, exchange.op, exchange.where);
}

template <class Begin>
void RankGroup::wait(const Exchange& exchange, Begin&& begin) {
  const auto turn = turn_of(exchange);
  const std::lock_guard lock(mutex_);
  claim(exchange);
  ++exchanges_;
  const auto start = std::chrono::steady_clock::now();
  try {
    begin();
    for (std::int64_t looks = 0; !backend_->is_done(); ++looks) {
      pause(looks);
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      if (waited.count() >= patience_s_) break;
    }
    if (backend_->is_done()) return;
  } catch (const Error& e) {
    broken_ = e.problem();
    (void)backend_->give_up(described(exchange), 0);
    throw Error(std::string(exchange.op), exchange.where, e.problem(), e.remedy(), e.code());
  } catch (const std::exception& e) {  // no memory, for instance: some ranks may have heard of this one, others not
    (void)backend_->give_up(described(exchange), 0);
    give_up(exchange, e.what());
  }
  give_up(exchange, waited_in(described(exchange)));
}

void RankGroup::all_to_all(const void* in, void* out, std::size_t bytes, const Exchange& exchange) {
  wait(exchange, [&] { backend_->all_to_all(Channel::elements, in, out, bytes); });
}

void RankGroup::all_gather(const void* in, void* out, std::size_t bytes, const Exchange& exchange) {
  wait(exchange, [&] { backend_->all_gather(Channel::elements, in, out, bytes); });
}

void RankGroup::broadcast(void* data, std::size_t bytes, int root, const Exchange& exchange) {
  wait(exchange, [&] { backend_->broadcast(Channel::elements, data, bytes, root); });
}

void RankGroup::send_receive(const void* in, int to, void* out, int from, std::size_t bytes, const Exchange& exchange) {
  wait(exchange, [&] { backend_->send_receive(Channel::elements, in, to, out, from, bytes); });
}

// Leaves `bytes` of each rank in Scratch::all; `mine` is filled up.
void RankGroup::gather(std::string_view mine, std::size_t bytes, const Exchange& exchange) {
  wait(exchange, [&] {
    scratch_->mine.assign(bytes, std::byte{0});
    scratch_->all.assign(bytes * at(size_), std::byte{0});
    std::transform(mine.begin(), mine.end(), scratch_->mine.begin(), [](char c) { return std::byte(c); });
    backend_->all_gather(Channel::texts, scratch_->mine.data(), scratch_->all.data(), bytes);
  });
}

std::vector<std::string> RankGroup::all_texts(std::string_view text, const Exchange& exchange) {
  const auto turn = turn_of(exchange);
  TextHeader mine;
  mine.size = text.size();
  exchange.op.copy(mine.op, sizeof mine.op - 1);
  const auto in_scratch = all_values(mine, exchange);
  const std::vector<TextHeader> headers(in_scratch.begin(), in_scratch.end());
  std::uint64_t longest = 0;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    longest = std::max(longest, headers[rank].size);
    if (std::strcmp(headers[rank].op, mine.op) == 0) continue;
    const std::lock_guard lock(mutex_);
    (void)backend_->give_up(described(exchange), 0);
    give_up(exchange, "rank " + std::to_string(rank_) + " is in " + described(exchange) + ", and rank " +
                          std::to_string(rank) + " in " + headers[rank].op);
  }
  gather(text, longest, exchange);
  std::vector<std::string> texts;
  const char* all = reinterpret_cast<const char*>(scratch_->all.data());
  for (std::size_t rank = 0; rank < headers.size(); ++rank)
    texts.emplace_back(all + rank * longest, headers[rank].size);
  return texts;
}

void RankGroup::broadcast_parts(void* data, std::size_t bytes, int root, const Exchange& exchange) {
  const auto turn = turn_of(exchange);
  for (std::size_t first = 0; first < bytes; first += kPart) {
    const std::size_t part = std::min(kPart, bytes - first);
    std::byte* place = static_cast<std::byte*>(data) + first;
    wait(exchange, [&] {
      scratch_->all.assign(place, place + part);
      backend_->broadcast(Channel::elements, scratch_->all.data(), part, root);
    });
    std::memcpy(place, scratch_->all.data(), part);
  }
}

void RankGroup::end_step(const Exchange& exchange) {
  const std::lock_guard lock(mutex_);
  if (program_ == exchange.program) program_ = nullptr;
}

bool RankGroup::has_agreed_on(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return agreed_on_.contains(text);
}

void RankGroup::note_agreement(const std::string& text) {
  const std::lock_guard lock(mutex_);
  agreed_on_.insert(text);
}

bool RankGroup::has_compared(const std::weak_ptr<const void>& graph, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto known = compared_.find(graph);
  return known != compared_.end() && known->second.contains(text);
}

void RankGroup::note_compared(const std::weak_ptr<const void>& graph, const std::string& text) {
  const std::lock_guard lock(mutex_);
  std::erase_if(compared_, [](const auto& other) { return other.first.expired(); });
  compared_[graph].insert(text);
}

std::int64_t RankGroup::exchanges() {
  const std::lock_guard lock(mutex_);
  return exchanges_;
}

}  // namespace graphsink
