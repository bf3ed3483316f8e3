#include "ranks/mpi_backend.h"

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "base/at.h"
#include "base/fork_mark.h"

namespace graphsink {
namespace {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0, kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  if (kind == MPI_ERR_TRUNCATE)
    throw Error("ranks", Where(), "another rank has sent more bytes than this one expected",
                "exchange data of the same types on all ranks", ErrorCode::device_lost);
  MPI_Error_string(code, text, &length);
  throw Error("ranks", Where(), std::string(call) + " failed: " + text,
              "end the process, and start all ranks again from a checkpoint", ErrorCode::device_lost);
}

// MPI is initialised once in a process, and is finalised when the process ends, if it was initialised here.
class MpiLibrary {
 public:
  MpiLibrary() {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized) {
      MPI_Query_thread(&level_);
      return;
    }
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_), "MPI_Init_thread");
    is_ours_ = true;
    // Open MPI reports errors of exchanges there, too. As they are, they would end the process.
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~MpiLibrary() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_ours_ && !is_finalized && !has_given_up_ && !fork_mark_.is_in_child()) MPI_Finalize();
  }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  int thread_level() const { return level_; }
  // A rank has not come to an exchange, and MPI_Finalize() would wait for it, too. mpirun ends the other processes when
  // one ends without that call.
  void give_up() { has_given_up_ = true; }
  bool has_given_up() const { return has_given_up_; }
  // The connections of MPI are those of the process that has opened it here.
  const ForkMark& fork_mark() const { return fork_mark_; }

 private:
  ForkMark fork_mark_;
  int level_ = MPI_THREAD_SINGLE;
  bool is_ours_ = false;
  std::atomic<bool> has_given_up_ = false;
};

MpiLibrary& mpi_library() {
  static MpiLibrary library;
  return library;
}

// A copy of MPI_COMM_WORLD, when all ranks ask for one.
MPI_Comm copy_of_world(const char* call, double patience_s, const Where& where) {
  const auto start = std::chrono::steady_clock::now();
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(MPI_COMM_WORLD, copy.get(), &request), "MPI_Comm_idup");
  std::chrono::duration<double> waited{};
  while (waited.count() < patience_s) {
    int flag = 0;
    check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (flag != 0) return *copy;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    waited = std::chrono::steady_clock::now() - start;
  }
  mpi_library().give_up();
  (void)copy.release();  // MPI still writes there if the others come
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  throw Error(call, where,
              "rank " + std::to_string(rank) + " of " + std::to_string(size) + " has waited " +
                  std::to_string(static_cast<std::int64_t>(patience_s * 1000)) + " ms for " +
                  (size == 2 ? "rank " + std::to_string(1 - rank) + ", which has not called it"
                             : "the other ranks, of which one has not called it"),
              "call it on all ranks as often; end the process, and start all ranks again", ErrorCode::device_lost);
}

// Words for each of the other ranks, and theirs. MPI uses this memory until the requests are done, which they never are
// for a rank that does not listen, so it is not freed.
class LastWords {
 public:
  LastWords(MPI_Comm comm, int rank, int size, const std::string& words) : rank_(rank), others_(at(size)) {
    words.copy(mine_, sizeof mine_ - 1);
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      Other& told = others_[at(other)];
      check(MPI_Irecv(told.words, sizeof told.words, MPI_BYTE, other, 0, comm, &told.received), "MPI_Irecv");
      check(MPI_Isend(mine_, sizeof mine_, MPI_BYTE, other, 0, comm, &told.sent), "MPI_Isend");
    }
  }

  bool are_there() {
    bool all = true;
    for (int other = 0; other < static_cast<int>(others_.size()); ++other) all &= other == rank_ || has_come(other);
    return all;
  }
  std::vector<std::optional<std::string>> come() {
    std::vector<std::optional<std::string>> all(others_.size());
    for (int other = 0; other < static_cast<int>(others_.size()); ++other)
      if (other != rank_ && has_come(other)) all[at(other)] = others_[at(other)].words;
    return all;
  }

 private:
  struct Other {
    char words[480] = {};
    MPI_Request received = MPI_REQUEST_NULL, sent = MPI_REQUEST_NULL;
  };

  // A request that is done is a null one, which is done, too.
  bool has_come(int other) {
    int flag = 0;
    return MPI_Test(&others_[at(other)].received, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag != 0;
  }

  int rank_;
  char mine_[sizeof Other::words] = {};
  std::vector<Other> others_;
};

class MpiBackend : public RankBackend {
 public:
  MpiBackend(const char* call, double patience_s, const Where& where) {
    for (MPI_Comm* comm : {&texts_, &elements_, &words_}) *comm = copy_of_world(call, patience_s, where);
    begin();
  }
  MpiBackend(const MpiBackend& whole, int color, int key) {
    check(MPI_Comm_split(whole.texts_, color, key, &texts_), "MPI_Comm_split");
    check(MPI_Comm_split(whole.elements_, color, key, &elements_), "MPI_Comm_split");
    check(MPI_Comm_split(whole.words_, color, key, &words_), "MPI_Comm_split");
    begin();
  }
  ~MpiBackend() override {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    // MPI_Comm_free() would wait for an exchange that others have left, or for ranks that have ended.
    if (is_finalized || has_given_up()) return;
    MPI_Comm_free(&texts_);
    MPI_Comm_free(&elements_);
    MPI_Comm_free(&words_);
  }
  MpiBackend(const MpiBackend&) = delete;
  MpiBackend& operator=(const MpiBackend&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_to_all(Channel channel, const void* in, void* out, std::size_t bytes) override {
    const int n = count(bytes);
    check(MPI_Ialltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, comm(channel), &requests_[0]), "MPI_Ialltoall");
  }
  void all_gather(Channel channel, const void* in, void* out, std::size_t bytes) override {
    const int n = count(bytes);
    check(MPI_Iallgather(in, n, MPI_BYTE, out, n, MPI_BYTE, comm(channel), &requests_[0]), "MPI_Iallgather");
  }
  void broadcast(Channel channel, void* data, std::size_t bytes, int root) override {
    check(MPI_Ibcast(data, count(bytes), MPI_BYTE, root, comm(channel), &requests_[0]), "MPI_Ibcast");
  }
  void send_receive(Channel channel, const void* in, int to, void* out, int from, std::size_t bytes) override {
    const int n = count(bytes);
    if (from >= 0) check(MPI_Irecv(out, n, MPI_BYTE, from, 0, comm(channel), &requests_[0]), "MPI_Irecv");
    if (to >= 0) check(MPI_Isend(in, n, MPI_BYTE, to, 0, comm(channel), &requests_[1]), "MPI_Isend");
  }
  bool is_done() override {
    int flag = 0;
    MPI_Status statuses[2];
    const int code = MPI_Testall(2, requests_, &flag, statuses);
    int kind = MPI_SUCCESS;
    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_IN_STATUS)
      for (const MPI_Status& status : statuses)
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "MPI_Testall");
    check(code, "MPI_Testall");
    return flag != 0;
  }
  std::vector<std::optional<std::string>> give_up(const std::string& words, double seconds) override {
    mpi_library().give_up();
    auto* told = new LastWords(words_, rank_, size_, words);
    const std::chrono::steady_clock::time_point end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
    while (!told->are_there() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return told->come();
  }
  bool has_given_up() const override { return mpi_library().has_given_up(); }
  std::unique_ptr<RankBackend> split(int color, int key, const std::vector<int>&) override {
    return std::make_unique<MpiBackend>(*this, color, key);
  }

 private:
  void begin() {
    for (MPI_Comm comm : {texts_, elements_, words_})
      check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Comm_rank(texts_, &rank_);
    MPI_Comm_size(texts_, &size_);
  }
  // Throws Error where MPI has ended with main(), before a program of static storage.
  MPI_Comm comm(Channel channel) const {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized)
      throw Error("ranks", Where(), "the process is ending", "end programs before main() returns", ErrorCode::misuse);
    return channel == Channel::texts ? texts_ : elements_;
  }
  static int count(std::size_t bytes) {
    if (bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max())) return static_cast<int>(bytes);
    throw Error("ranks", Where(),
                std::to_string(bytes) + " bytes in one exchange, and MPI counts no more than 2^31 - 1",
                "exchange the tensor in parts");
  }

  MPI_Comm texts_ = MPI_COMM_NULL, elements_ = MPI_COMM_NULL, words_ = MPI_COMM_NULL;
  MPI_Request requests_[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<RankBackend> open_mpi(const char* call, double patience_s, const Where& where) {
  mpi_library().fork_mark().require_parent(call, where);
  if (mpi_library().thread_level() < MPI_THREAD_MULTIPLE)
    throw Error(call, where, "MPI was initialised for fewer threads than MPI_THREAD_MULTIPLE",
                "call MPI_Init_thread() with MPI_THREAD_MULTIPLE, or leave it to mpi_world()", ErrorCode::unavailable);
  return std::make_unique<MpiBackend>(call, patience_s, where);
}

int mpi_ranks() {
  int is_initialized = 0, is_finalized = 0, ranks = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized && !is_finalized) MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

}  // namespace graphsink
