#include "ranks/rank_group.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "base/at.h"

namespace graphsink {
namespace {

constexpr const char* kRemedy = "end the process, and start all ranks again from a checkpoint";

// Between two looks whether the others have come: soon at first, then seldom, because ranks may share processors.
void pause(std::int64_t looks) {
  if (looks < 1000) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(looks < 10000 ? 20 : 200));
}

}  // namespace

RankGroup::RankGroup(std::unique_ptr<RankBackend> backend, double patience_s)
    : backend_(std::move(backend)), rank_(backend_->rank()), size_(backend_->size()), patience_s_(patience_s) {}

template <class Begin>
void RankGroup::wait(const Exchange& exchange, Begin&& begin) {
  const std::lock_guard lock(mutex_);
  if (broken_) throw Error(std::string(exchange.op), exchange.where, *broken_, kRemedy, ErrorCode::device_lost);
  begin();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t looks = 0; !backend_->is_done(); ++looks) {
    pause(looks);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() < patience_s_) continue;
    const std::string place = to_string(exchange.where);
    const std::string seconds = std::to_string(static_cast<std::int64_t>(patience_s_ * 1000)) + " ms";
    broken_ = "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + " has waited " + seconds + " in " +
              std::string(exchange.op) + (place.empty() ? "" : " (" + place + ")") +
              " for a rank that did not come: it has ended, hangs, or is at another collective";
    throw Error(std::string(exchange.op), exchange.where, *broken_, kRemedy, ErrorCode::device_lost);
  }
}

void RankGroup::all_to_all(const void* in, void* out, std::size_t bytes, const Exchange& exchange) {
  wait(exchange, [&] { backend_->all_to_all(in, out, bytes); });
}

void RankGroup::all_gather(const void* in, void* out, std::size_t bytes, const Exchange& exchange) {
  wait(exchange, [&] { backend_->all_gather(in, out, bytes); });
}

void RankGroup::broadcast(void* data, std::size_t bytes, int root, const Exchange& exchange) {
  wait(exchange, [&] { backend_->broadcast(data, bytes, root); });
}

std::vector<std::string> RankGroup::all_texts(const std::string& text, const Exchange& exchange) {
  const std::uint64_t mine = text.size();
  std::vector<std::uint64_t> sizes(at(size_));
  all_gather(&mine, sizes.data(), sizeof mine, exchange);
  const std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = text, all(at(size_) * longest, '\0');
  padded.resize(longest);
  all_gather(padded.data(), all.data(), longest, exchange);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) texts.push_back(all.substr(rank * longest, sizes[rank]));
  return texts;
}

}  // namespace graphsink
