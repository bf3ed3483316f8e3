// Which files the ranks of a training go on from, when each has saved its own.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"
#include "ranks/rank_group.h"

namespace graphsink::testing {
namespace shard_folder_test {

namespace fs = std::filesystem;

// A folder that all ranks share, and in which the first one may change files between two calls of the test.
class ShardFolder : public ::testing::Test {
 protected:
  ShardFolder() {
    const fs::path name = fs::temp_directory_path() / ("graphsink-shard-folder-" + std::to_string(getpid()));
    folder_ = world().group()->all_texts(name.string(), {"test", Where()})[0];
  }
  ~ShardFolder() override {
    change([&] { fs::remove_all(folder_); });
  }

  template <class Change>
  void change(const Change& make) {
    world().barrier();
    if (world().rank() == 0) make();
    world().barrier();
  }
  // A file of the program of a test, as rank `rank` of `ranks` saves it.
  void save(int rank, int ranks, const std::string& step) {
    const fs::path path = file(rank, ranks, step);
    fs::create_directories(path.parent_path());
    Checkpoint checkpoint = snapshot(std::vector<Variable>{w});
    checkpoint.metadata["step"] = step;
    write_checkpoint(path, checkpoint);
  }
  fs::path file(int rank, int ranks, const std::string& step) const {
    return folder_ / ("rank" + std::to_string(rank) + "-of-" + std::to_string(ranks)) /
           ("step-" + std::string(12 - step.size(), '0') + step + ".safetensors");
  }
  fs::path prepared() { return shard_folder(folder_, world(), std::vector<Variable>{w}); }

  Variable w{"w", Tensor({1.0f, 2.0f})};
  fs::path folder_;
};

TEST_F(ShardFolder, IsMadeForATrainingThatBegins) {
  const fs::path mine = prepared();
  EXPECT_EQ(mine, file(world().rank(), world().size(), "0").parent_path());
  EXPECT_TRUE(fs::is_directory(mine) && fs::is_empty(mine));
  EXPECT_TRUE(newest_sharded_checkpoint(folder_).empty());
  EXPECT_TRUE(newest_sharded_checkpoint(folder_ / "none").empty());
}

// The last rank was killed before it saved step 30.
TEST_F(ShardFolder, GoesOnFromTheNewestStepThatAllHave) {
  const int n = world().size();
  change([&] {
    for (int rank = 0; rank < n; ++rank)
      for (const char* step : {"9", "10", "30"})
        if (std::string(step) != "30" || rank < n - 1) save(rank, n, step);
    std::ofstream(file(0, n, "30").string() + ".partial.0123456789abcdef");
  });
  EXPECT_EQ(newest_sharded_checkpoint(folder_).at(0), file(0, n, "10"));
  world().barrier();
  const fs::path mine = prepared();
  EXPECT_EQ(newest_checkpoint(mine), file(world().rank(), n, "10"));
}

// Another number of ranks has come further, so all go on from its files, of which each gets its part.
TEST_F(ShardFolder, GoesOnFromTheFilesOfAnotherNumberOfRanks) {
  const int n = world().size(), other = n + 1;
  change([&] {
    for (int rank = 0; rank < n; ++rank) save(rank, n, "10"), save(rank, n, "30");
    for (int rank = 0; rank < other; ++rank) save(rank, other, "20");
    fs::remove(file(n - 1, n, "30"));
  });
  const fs::path mine = prepared();
  const fs::path newest = newest_checkpoint(mine);
  EXPECT_EQ(newest, file(world().rank(), n, "20"));
  EXPECT_EQ(read_checkpoint(newest).number("step"), 20);
  EXPECT_TRUE(fs::exists(file(world().rank(), n, "10")));
}

TEST_F(ShardFolder, RefusesOnAllRanksWhatOneCannotRead) {
  const int n = world().size();
  change([&] {
    for (int rank = 0; rank < n; ++rank) save(rank, n, "10");
    std::ofstream(file(n - 1, n, "10")) << "no checkpoint";
  });
  const std::string problem = problem_of([&] { (void)prepared(); });
  EXPECT_TRUE(has(problem, "smaller than") || has(problem, "step-000000000010.safetensors")) << problem;
  if (world().rank() < n - 1) {
    EXPECT_TRUE(has(problem, "shard_folder: failed on rank " + std::to_string(n - 1))) << problem;
  }
}

// As many ranks were a grid of other sides when they saved, so that each had other parts of the parameters.
TEST_F(ShardFolder, RefusesFilesOfRanksThatWereDividedInAnotherWay) {
  const int n = world().size();
  change([&] {
    for (int rank = 0; rank < n; ++rank) {
      Checkpoint checkpoint;
      checkpoint.metadata["step"] = "10";
      checkpoint.tensors.emplace("b.part9.adamw.m", Tensor(f32, {2}));
      fs::create_directories(file(rank, n, "10").parent_path());
      write_checkpoint(file(rank, n, "10"), checkpoint);
    }
  });
  const Variable m("b.part0.adamw.m", Tensor(f32, {2}));
  const std::string problem = problem_of([&] { (void)shard_folder(folder_, world(), std::vector{m}); });
  EXPECT_TRUE(has(problem, "has \"b.part9.adamw.m\", and this rank has \"b.part0.adamw.m\"")) << problem;
  EXPECT_TRUE(fs::exists(file(0, n, "10")));
}

// The folder of a training on one process, or of ranks that divide nothing.
TEST_F(ShardFolder, GoesOnFromAFileOfATrainingThatDividesNothing) {
  const int n = world().size();
  const fs::path file_of_one = folder_ / "step-000000000020.safetensors";
  change([&] {
    save(0, n, "10");
    for (int rank = 1; rank < n; ++rank) save(rank, n, "10");
    fs::copy(file(0, n, "10"), file_of_one);
  });
  EXPECT_EQ(newest_sharded_checkpoint(folder_), std::vector<fs::path>{file_of_one});
  EXPECT_EQ(newest_checkpoint(prepared()), file(world().rank(), n, "20"));
}

// Somebody has taken away the folder of a rank. The files of the others are not removed.
TEST_F(ShardFolder, RefusesFilesOfSomeRanksAlone) {
  const int n = world().size();
  change([&] {
    for (int rank = 1; rank <= n; ++rank) save(rank, n + 1, "10");
  });
  EXPECT_TRUE(has(problem_of([&] { (void)prepared(); }), "none is of a step that all of them saved"));
  EXPECT_TRUE(fs::exists(file(1, n + 1, "10")));
}

// A kill came when the last rank was about to save for the first time, and others had: no step was saved by all.
TEST_F(ShardFolder, BeginsAnewAfterAKillInTheFirstSave) {
  const int n = world().size();
  change([&] {
    for (int rank = 0; rank < n; ++rank) save(rank, n + 1, "10");
    fs::create_directories(file(n, n + 1, "10").parent_path());
    for (int rank = 0; rank < n; ++rank) fs::create_directories(file(rank, n, "10").parent_path());
    for (int rank = 0; rank < n - 1; ++rank) save(rank, n, "10");
  });
  EXPECT_TRUE(newest_sharded_checkpoint(folder_).empty());
  world().barrier();
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(fs::is_empty(prepared()));
  const bool has_told = has(::testing::internal::GetCapturedStdout(), "begins anew, and removes " + folder_.string());
  EXPECT_EQ(has_told, world().rank() < n - 1);
}

// The disk of the last rank was full from the first save on, and the others have gone on. They keep their files.
TEST_F(ShardFolder, RefusesFilesOfRanksThatWentOnWithoutOne) {
  const int n = world().size() + 1;
  change([&] {
    for (int rank = 0; rank < n - 1; ++rank) save(rank, n, "10"), save(rank, n, "20");
    fs::create_directories(file(n - 1, n, "10").parent_path());
  });
  EXPECT_TRUE(has(problem_of([&] { (void)prepared(); }), "none is of a step that all of them saved"));
  EXPECT_TRUE(fs::exists(file(0, n, "10")));
}

// Names that only look like those of train() belong to somebody else.
TEST_F(ShardFolder, LeavesOtherFilesAlone) {
  const fs::path other = file(world().rank(), world().size(), "10").replace_filename("step-about-things.safetensors");
  fs::create_directories(other.parent_path());
  std::ofstream{other} << "mine";
  (void)prepared();
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(ShardFolder, RefusesFilesWithoutACommonStep) {
  const int n = world().size() + 1;
  change([&] {
    for (int rank = 0; rank < n; ++rank) save(rank, n, std::to_string(10 + rank));
  });
  EXPECT_TRUE(has(problem_of([&] { (void)prepared(); }), "none is of a step that all of them saved"));
}

}  // namespace shard_folder_test
}  // namespace graphsink::testing
