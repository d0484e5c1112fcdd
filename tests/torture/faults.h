#pragma once
// The schedules of torture: what a seed stands for, and how it is done to a tiny job.
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
  // From 0 to below `below`; the same on every machine, which the standard's distributions are not.
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
  static const std::vector<std::string>& kinds();  // that can be done here

  // Does to a job what kind and seed stand for, and lets it end. What was wrong, or "".
  std::string torture(const std::string& kind, uint64_t seed);
  const std::string& story() const { return story_; }    // of the last one, in words
  void take_disk_away();                                 // if it had one of its own
  int64_t faults() const { return faults_ + struck(); }  // that were done in all

 private:
  // One start of the job, and what happens to it.
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
  std::string damage(Dice& dice, const std::string& name);  // to files of a run that has stopped
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
  std::string disk_;  // where one is mounted; "": none
  Taken taken_;
  int64_t faults_ = 0;
  std::map<std::string, int64_t> calls_;  // of an undisturbed run of two workers
  std::vector<std::pair<std::filesystem::path, std::filesystem::path>> moved_;
};

}  // namespace elinvar::test
