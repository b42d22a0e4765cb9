// Trains a classifier with a library whose optimizer owns the loop, in one process:
//   optimizer_owns_loop_before
#include "optimizer_owns_loop.hpp"

int main() {
    Classifier classifier;
    std::vector<double> parameters(3);
    library::optimize_by_sgd(classifier, parameters, 0.5, 64, 10);
}
