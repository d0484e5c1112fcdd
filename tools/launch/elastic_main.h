#pragma once
// main() of a program that trains elastically. The program registers its own kinds of data, networks and optimisers and
// calls:
//
//   int main(int argc, char** argv) {
//     elinvar::register_dataset({"spirals", open_spirals});       // data/dataset.h
//     elinvar::register_model({"my_network", build_network});     // models/kinds.h
//     elinvar::register_optimizer({"my_rule", make_optimizer});   // nn/optimizer.h
//     elinvar::register_task({"my_task", make_objective});        // nn/task.h
//     return elinvar::elastic_main(argc, argv);
//   }
//
//   program run CONFIG.toml --workers 3     a coordinator, which starts the program three times as `program join`
//   program join RUN_DIR                    one more worker, while the job trains
//   program ctl RUN_DIR status              the job's status; also drain, scale, checkpoint, stop
//   program eval RUN_DIR                    loss and accuracy of its newest checkpoint
//
// The configuration names these kinds like built-in ones: [model] kind = "my_network". Every process of a job must run
// this program. A worker of another build is admitted after it has computed the run's first updates with the same bits;
// one with another configuration or other data is refused.
namespace elinvar {

// Returns the exit code of main(): 0 done, 2 a wrong call or configuration, 3 a failure at run time.
int elastic_main(int argc, char** argv);

}  // namespace elinvar
