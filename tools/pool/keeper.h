#pragma once
// The daemon's loop, without threads, clock and sockets: it looks at machines, processes and run directories, makes a
// Pool of what it sees, asks a policy for a plan, and carries out the differences. Everything that it must not forget
// is in the store before it is done, so that one that is killed at any moment is followed by one that goes on: jobs
// train meanwhile, and whatever runs is found again. Nothing is ever undone; what a plan no longer wants is asked to
// leave.
//
// A job is a coordinator on this host, which no slot is given to, and a worker for each slot (or `width` of them). The
// coordinator may die: one of the workers starts another (elastic/PROTOCOL.md), and only when nobody coordinates any
// more is the job started again with --resume, after a while that doubles with each failure without progress.
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tools/pool/process.h"
#include "tools/pool/sight.h"
#include "tools/pool/source.h"
#include "tools/pool/store.h"

namespace elinvar::pool {

// What the loop does to the world.
class World {
 public:
  virtual ~World() = default;
  virtual void prepare(const JobRecord& job) = 0;  // its directory, before its coordinator is started
  virtual std::string start(const std::vector<std::string>& words, const std::filesystem::path& log) = 0;  // a handle
  virtual std::string find(const std::vector<std::string>& words) = 0;                                     // process.h
  virtual Fate fate(const std::string& handle) = 0;
  virtual void kill(const std::string& handle) = 0;
  virtual std::string last_words(const std::filesystem::path& log) = 0;
  virtual int64_t kernel_kills() = 0;
  virtual const Sight& sight(Id job, double now) = 0;
  // `train ctl` of the job, which need not answer: "stop", or "drain" with a worker's name.
  virtual void ask(Id job, const std::vector<std::string>& words) = 0;
};

struct KeeperOptions {
  Policy policy;
  // The speed of a job, by what was measured of it.
  std::function<std::shared_ptr<const Speed>(const JobRecord&, const std::vector<Measurement>&)> speed;
  std::function<Besides(const JobRecord&)> besides = {};  // none: as usual, and its own validations
  std::string train = "train";                            // the program, on this host
  std::string advertise = {};  // under which other hosts find this one; "": no job leaves this host
  double grace = 20;           // for a worker to leave, then it is killed
  double takeover = 20;        // for workers to start another coordinator
  double replan = 10;          // the longest time between two plans
  double idle = 120;           // before a machine that nobody uses is given back
  int failures = 5;            // one after the other, then a job has failed
  double patience = 1800, turn = 300, horizon = 120;  // of the Pool
};

class Keeper {
 public:
  struct NamedSource {
    std::string name;
    std::unique_ptr<Source> source;
  };
  Keeper(Store& store, World& world, std::vector<NamedSource> sources, KeeperOptions options);

  void tick(double now);  // by wall_clock()
  void end();             // machines on which nothing runs are given back

 private:
  struct Live {  // a slot, beyond what is on file
    double until = kNever;
    bool leaving = false;  // nothing is to be started there, and what is there has to leave
    double idle_since = 0;
  };
  struct Rest {
    int failures = 0;
    double until = 0;
    std::set<Id> jobs = {};  // whose workers did not live there
  };
  struct Promise {  // how fast a job would be with this, when it was first given it
    Mix mix;
    Form form;
    double rate = 0, doubt = 0;
    bool trial = false;
    int64_t generation = 0;  // in which it was seen what came of it,
    bool judged = false;     // for long enough
  };

  // machines.cpp: what is there
  void look_at_machines();
  void look_at_source(const NamedSource& source);
  void notice(const Machine& machine, const std::vector<Id>& slots);
  void lose_slots(const std::function<bool(const SlotRecord&)>& gone);

  // keeper.cpp: what has become of it
  void load();
  void forget_times();
  void set_right(JobRecord& job);
  void set_right(ProcessRecord& process);
  void look_at_processes();
  void ended(ProcessRecord& process, int code);
  bool job_is_new(Id job);
  void look_at_jobs();
  void look_at_job(JobRecord& job);
  void conclude(JobRecord& job, const Sight& sight);
  void failed(JobRecord& job, const std::string& reason);
  void enter(JobRecord& job, JobRecord::State state, const std::string& reason);

  // learning.cpp: what it teaches
  void look_at_readers(const JobRecord& job, const Sight& sight);
  void look_besides(JobRecord& job, const Sight& sight);
  void measure(JobRecord& job, const Sight& sight);
  void look_at_changes(JobRecord& job, const Sight& sight);
  void judge(const JobRecord& job, const Measurement& measurement);

  // carry_out.cpp: what is to be done
  void plan();
  Pool pool() const;
  void carry_out();
  void carry_out(JobRecord& job, const Decision& decision);
  void start_coordinator(JobRecord& job, const Form& form);
  void start_worker(const JobRecord& job, const std::vector<Id>& slots, const std::string& endpoint);
  void launch(ProcessRecord process, std::vector<std::string> words, const SlotRecord* slot);
  void leave(ProcessRecord& process, const std::string& reason);
  void stop(JobRecord& job, const std::string& reason);
  void give_back();

  bool usable(Id slot) const;  // for plans
  // For a moment nothing of this job is started there; of others only if nobody lives there.
  bool rests(Id slot, Id job) const;
  bool lives(const std::string& host) const;  // a worker that its job knows
  bool stays(const ProcessRecord& process) const;
  const SlotRecord* slot(Id id) const;
  std::vector<Form> forms_of(const JobRecord& job) const;
  const Machine* machine_of(const SlotRecord& slot) const;  // none: it is gone, or its source is served no more
  Source* source_of(const SlotRecord& slot) const;
  std::vector<ProcessRecord*> workers_of(Id job);
  ProcessRecord* coordinator_of(Id job);
  std::filesystem::path log_of(const ProcessRecord& process) const;
  void log(Id job, const std::string& what, const std::string& reason, const std::string& where = "");
  // A failure is this job's trouble, and told once: the others go on.
  void apart(Id job, const std::function<void()>& work);

  Store& store_;
  World& world_;
  std::vector<NamedSource> sources_;
  KeeperOptions options_;
  double now_ = 0, began_ = 0, planned_ = 0;
  bool changed_ = true;  // something that a plan depends on
  int wanted_ = 0;

  std::vector<JobRecord> jobs_;
  std::vector<SlotRecord> slots_;
  std::deque<ProcessRecord> processes_;  // what is pointed to stays where it is when others are added
  std::map<Id, Live> live_;
  std::map<std::string, std::vector<Machine>> machines_;  // by source
  std::map<std::string, std::string> trouble_;            // of a source,
  std::map<Id, std::string> trouble_of_;                  // and of a job
  std::map<std::string, Rest> rests_;                     // of a host where workers do not live
  std::map<Id, Decision> decisions_;                      // by job
  std::set<Id> reforming_;                                // jobs that stop only to go on in another form
  std::map<Id, Promise> promised_;                        // by job
  std::map<Id, int> codes_;                               // of a job's last coordinator
  std::map<Id, double> asked_, silent_since_, measured_at_, noted_at_;
  std::map<Id, int64_t> measured_;  // the last generation of a job of which there is a measurement
  std::map<Id, std::string> readers_;
  std::map<Id, int> stillborn_;       // of a job: workers in a row that ended before it knew them
  std::set<Id> lived_;                // jobs of which a worker has lived
  std::map<Id, std::string> doomed_;  // jobs that cannot run, and why
  std::set<Id> known_;                // jobs
  std::set<std::string> answered_;    // sources
  int64_t kernel_kills_ = 0, kills_before_ = 0;
};

}  // namespace elinvar::pool
