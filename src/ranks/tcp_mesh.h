// The connections of this process to all ranks that were started with it by variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>
#include <zmq.hpp>

#include "base/fork_mark.h"
#include "ranks/tcp_start.h"

namespace graphsink {

// Names a message for the rank that waits for it: messages of different groups and kinds do not meet, and those of a
// rank that runs ahead are kept until this one asks for them.
struct MessageKey {
  std::string group;
  int kind = 0;
  std::uint64_t number = 0;  // counts the exchanges of the kind in the group
  int from = 0;              // a rank of the mesh

  auto operator<=>(const MessageKey&) const = default;
};

// Any thread may call these. Nothing here waits for other ranks but the constructor.
class TcpMesh {
 public:
  // Returns when all ranks have come. Throws Error if one does not within the patience.
  TcpMesh(const RankStart& start, double patience_s, const Where& where);
  ~TcpMesh();
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  const RankStart& start() const { return start_; }
  // The connections are those of the process that made them.
  const ForkMark& fork_mark() const { return fork_mark_; }
  // The name of the next group of all ranks; they make as many.
  std::string next_world();

  // `key.from` is this rank. Messages lie in memory of the mesh until the other rank has them. Throws Error where the
  // library of messages refuses.
  void send(int to, const MessageKey& key, zmq::message_t message);
  // Keeps what has come. Throws Error likewise.
  void receive();
  // The message, where receive() has met it.
  std::optional<zmq::message_t> take(const MessageKey& key);
  // The text of such a message, which stays.
  std::optional<std::string> look_at(const MessageKey& key) const;

  // The process ends: what was sent goes on its way, for ten seconds at most. Later calls send and receive nothing.
  void end();

  // A rank does not come, so that nothing is to wait long for it when the process ends.
  void give_up();
  bool has_given_up() const;

 private:
  struct Sockets {
    zmq::context_t context;
    zmq::socket_t in;
    std::vector<zmq::socket_t> out;  // one for each rank; this rank's own is not used
  };

  const RankStart start_;
  ForkMark fork_mark_;
  mutable std::mutex mutex_;
  std::unique_ptr<Sockets> sockets_ = std::make_unique<Sockets>();  // null behind end()
  std::uint64_t token_ = 0;
  std::map<MessageKey, zmq::message_t> messages_;
  bool has_given_up_ = false;
  int worlds_ = 0;
};

}  // namespace graphsink
