// Trains a classifier with a library whose optimizer owns the loop, on any number of ranks:
//   mpirun -np 2 optimizer_owns_loop_after
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include "optimizer_owns_loop.hpp"

// The function that the optimizer calls. Each rank computes its part of each batch.
class DistributedClassifier : public Classifier {
  public:
    DistributedClassifier(dptk::ProcessGroup& group, std::vector<double>& parameters)
        : group_(group),
          gradient_(parameters.size()),
          ddp_(group, parameters, gradient_, {.loss_reduction = dptk::LossReduction::sum}) {}

    double evaluate_with_gradient(const std::vector<double>& w, std::size_t begin, std::size_t count,
                                  std::vector<double>& gradient) {
        const auto rank = static_cast<std::size_t>(group_.rank());
        const auto size = static_cast<std::size_t>(group_.size());
        const std::size_t first = count * rank / size;
        const std::size_t own = count * (rank + 1) / size - first;
        const double loss = Classifier::evaluate_with_gradient(w, begin + first, own, gradient_);
        ddp_.synchronize();
        gradient = gradient_;
        return group_.all_reduce_value(loss);
    }

    void report(int epoch, double loss) const {
        if (group_.rank() == 0) Classifier::report(epoch, loss);
    }

  private:
    dptk::ProcessGroup& group_;
    std::vector<double> gradient_;
    dptk::DistributedDataParallel ddp_;
};

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<double> parameters(3);
    DistributedClassifier classifier(group, parameters);
    library::optimize_by_sgd(classifier, parameters, 0.5, 64, 10);
}
