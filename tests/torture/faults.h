#pragma once
// The schedules of torture: a seed determines one, which is carried out on a tiny job.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/torture/job.h"

namespace elinvar::test {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15 + 1) {}
  // Returns a number in [0, below); the same on every machine, unlike with the standard's distributions.
  int64_t number(int64_t below) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(below)); }
  int64_t between(int64_t least, int64_t most) { return least + number(most - least + 1); }
  double real(double most) { return most * static_cast<double>(random_() >> 11) / 9007199254740992.0; }
  bool chance(double p) { return real(1) < p; }
  template <class T>
  T pick(const std::vector<T>& among) {
    return among[static_cast<size_t>(number(static_cast<int64_t>(among.size())))];
  }

 private:
  std::mt19937_64 random_;
};

class Torture : public TortureJob {
 protected:
  ~Torture() override { take_disk_away(); }
  static const std::vector<std::string>& kinds();  // those possible on this machine

  // Carries out the schedule of this kind and seed, and lets the job end. Returns what was wrong, or "".
  std::string torture(const std::string& kind, uint64_t seed);
  const std::string& story() const { return story_; }    // the newest schedule, in words
  void take_disk_away();                                 // if it has a separate one
  int64_t faults() const { return faults_ + struck(); }  // total number of faults

 private:
  // One start of the job, and its disturbances.
  struct Phase {
    Launch launch = {};
    std::vector<Deed> deeds = {};
  };
  void storage(Dice& dice, Phase& phase);
  void clock(Dice& dice, Phase& phase);
  void streams(Dice& dice, Phase& phase);
  void limits(Dice& dice, Phase& phase);
  void signals(Dice& dice, Phase& phase);
  void threads(Dice& dice, Phase& phase);
  void directories(Dice& dice, Phase& phase);
  void disk(Dice& dice, Phase& phase);
  std::string damage(Dice& dice, const std::string& name);  // of files of a stopped run
  std::string pool(Dice& dice);                             // a whole schedule

  std::string rule_of(Dice& dice);
  pid_t serve(const Launch& launch, bool until_done);
  void happen_to_pool(Dice& dice, pid_t* daemon, int64_t jobs);
  std::string judge_pool(int64_t jobs);
  bool refuse_clearly(int64_t jobs) const;
  void harm(const std::string& target, const std::string& how);
  void restore();
  static bool can_preload();
  void preload(Launch& launch) const;
  void add_failing(Launch& launch, const std::string& rule);
  void count_calls();
  std::string counts_file() const { return folder_ / "counts"; }
  int64_t failures_counted() const;
  void tell(const std::string& what) { story_ += (story_.empty() ? "" : "; ") + what; }

  std::string name_, story_;
  std::string disk_;  // mount point; "": none
  Taken taken_;
  int64_t faults_ = 0;
  std::map<std::string, int64_t> calls_;  // calls in an undisturbed run of two workers
  std::vector<std::pair<std::filesystem::path, std::filesystem::path>> moved_;
};

}  // namespace elinvar::test
