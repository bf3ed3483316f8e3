#include "ranks/tcp_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/at.h"
#include "ranks/tcp_mesh.h"

namespace graphsink {
namespace {

constexpr int kWords = 2;  // the kind of last words, beside those of the channels

zmq::message_t message_of(const void* data, std::size_t bytes) {
  zmq::message_t message(bytes);
  if (bytes > 0) std::memcpy(message.data(), data, bytes);
  return message;
}
void copy_bytes(void* out, const void* in, std::size_t bytes) {
  if (bytes > 0) std::memcpy(out, in, bytes);
}

class TcpBackend : public RankBackend {
 public:
  // `members` are the ranks of the mesh, in the order of the group.
  TcpBackend(std::shared_ptr<TcpMesh> mesh, std::string group, std::vector<int> members)
      : mesh_(std::move(mesh)), group_(std::move(group)), members_(std::move(members)) {
    const auto mine = std::find(members_.begin(), members_.end(), mesh_->start().rank);
    rank_ = static_cast<int>(mine - members_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int local_rank() const override { return mesh_->start().local_rank; }

  void all_to_all(Channel channel, const void* in, void* out, std::size_t bytes) override {
    begin(channel);
    const auto* parts = static_cast<const std::byte*>(in);
    for (int other = 0; other < size(); ++other)
      if (other != rank_) send(other, message_of(parts + at(other) * bytes, bytes));
    copy_bytes(static_cast<std::byte*>(out) + at(rank_) * bytes, parts + at(rank_) * bytes, bytes);
    expect_all(out, bytes);
  }
  void all_gather(Channel channel, const void* in, void* out, std::size_t bytes) override {
    begin(channel);
    send_to_all(in, bytes);
    copy_bytes(static_cast<std::byte*>(out) + at(rank_) * bytes, in, bytes);
    expect_all(out, bytes);
  }
  // The others answer, so that a root that goes on does not pile up messages for ranks that do not come.
  void broadcast(Channel channel, void* data, std::size_t bytes, int root) override {
    begin(channel);
    if (rank_ == root) {
      send_to_all(data, bytes);
      expect_all(data, 0);
    } else {
      expected_.push_back({root, data, bytes});
      answers_ = root;
    }
  }
  void send_receive(Channel channel, const void* in, int to, void* out, int from, std::size_t bytes) override {
    begin(channel);
    if (to >= 0 && to != rank_) send(to, message_of(in, bytes));
    if (from == rank_) copy_bytes(out, in, bytes);
    if (from >= 0 && from != rank_) expected_.push_back({from, out, bytes});
  }

  bool is_done() override {
    if (!expected_.empty()) mesh_->receive();
    const std::optional<std::string> gone = who_has_given_up();
    std::erase_if(expected_, [this](const Expected& expected) { return has_come(expected); });
    if (!expected_.empty() && gone)
      throw Error("ranks", Where(), *gone, "end the process, and start all ranks again from a checkpoint",
                  ErrorCode::device_lost);
    if (!expected_.empty()) return false;
    if (answers_ >= 0) send(std::exchange(answers_, -1), zmq::message_t());
    return true;
  }

  std::vector<std::optional<std::string>> give_up(const std::string& words, double seconds) override {
    expected_.clear();
    answers_ = -1;
    mesh_->give_up();
    std::vector<std::optional<std::string>> all(members_.size());
    for (int other = 0; other < size(); ++other)
      if (other != rank_)
        mesh_->send(members_[at(other)], key(kWords, 0, rank_), message_of(words.data(), words.size()));
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
    while (true) {
      int missing = 0;
      mesh_->receive();
      for (int other = 0; other < size(); ++other) {
        if (other == rank_ || all[at(other)]) continue;
        if (const auto theirs = mesh_->take(key(kWords, 0, other))) {
          all[at(other)] = theirs->to_string();
        } else {
          ++missing;
        }
      }
      if (missing == 0 || std::chrono::steady_clock::now() >= end) return all;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool has_given_up() const override { return mesh_->has_given_up(); }

  std::unique_ptr<RankBackend> split(int color, int, const std::vector<int>& members) override {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(members_[at(member)]);
    return std::make_unique<TcpBackend>(mesh_, group_ + "/" + std::to_string(splits_++) + "." + std::to_string(color),
                                        std::move(ranks));
  }

 private:
  struct Expected {
    int from;
    void* out;
    std::size_t bytes;
  };

  void begin(Channel channel) {
    kind_ = channel == Channel::texts ? 0 : 1;
    number_ = numbers_[kind_]++;
  }
  MessageKey key(int kind, std::uint64_t number, int from) const { return {group_, kind, number, members_[at(from)]}; }
  void send(int to, zmq::message_t message) {
    mesh_->send(members_[at(to)], key(kind_, number_, rank_), std::move(message));
  }
  void send_to_all(const void* data, std::size_t bytes) {
    zmq::message_t message = message_of(data, bytes);
    for (int other = 0; other < size(); ++other) {
      if (other == rank_) continue;
      zmq::message_t same;
      same.copy(message);  // both have the same bytes
      send(other, std::move(same));
    }
  }
  void expect_all(void* out, std::size_t bytes) {
    for (int other = 0; other < size(); ++other)
      if (other != rank_) expected_.push_back({other, static_cast<std::byte*>(out) + at(other) * bytes, bytes});
  }
  // A rank that is expected, and sends nothing more in this group: what it had to send before lies in the mesh already.
  std::optional<std::string> who_has_given_up() const {
    for (const Expected& expected : expected_)
      if (const auto words = mesh_->look_at(key(kWords, 0, expected.from)))
        return "rank " + std::to_string(expected.from) + " does not come any more: it has given up in " + *words;
    return std::nullopt;
  }
  bool has_come(const Expected& expected) {
    const std::optional<zmq::message_t> message = mesh_->take(key(kind_, number_, expected.from));
    if (!message) return false;
    if (message->size() != expected.bytes)
      throw Error("ranks", Where(),
                  "rank " + std::to_string(expected.from) + " has sent " + std::to_string(message->size()) +
                      " bytes, where rank " + std::to_string(rank_) + " expected " + std::to_string(expected.bytes),
                  "exchange data of the same types on all ranks", ErrorCode::device_lost);
    copy_bytes(expected.out, message->data(), expected.bytes);
    return true;
  }

  std::shared_ptr<TcpMesh> mesh_;
  std::string group_;
  std::vector<int> members_;
  int rank_ = 0, splits_ = 0;
  std::uint64_t numbers_[2] = {0, 0};
  // The exchange that is under way.
  int kind_ = 0;
  std::uint64_t number_ = 0;
  std::vector<Expected> expected_;
  int answers_ = -1;  // the rank that gets an answer when all is there
};

// The mesh lasts until the process ends, because rank 0 listens for others but once. Groups that exit() leaves alive
// would keep it from sending the rest.
struct MeshOfProcess {
  ~MeshOfProcess() {
    if (mesh) mesh->end();
  }
  std::mutex mutex;
  std::shared_ptr<TcpMesh> mesh;
};

}  // namespace

std::unique_ptr<RankBackend> open_tcp(const RankStart& start, double patience_s, const Where& where) {
  static MeshOfProcess process;
  const std::lock_guard lock(process.mutex);
  if (process.mesh) process.mesh->fork_mark().require_parent("world", where);
  if (!process.mesh) process.mesh = std::make_shared<TcpMesh>(start, patience_s, where);
  std::vector<int> all(at(start.size));
  for (int rank = 0; rank < start.size; ++rank) all[at(rank)] = rank;
  return std::make_unique<TcpBackend>(process.mesh, process.mesh->next_world(), std::move(all));
}

}  // namespace graphsink
