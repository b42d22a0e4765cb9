#include <dptk/adapters/eigen.hpp>
#include <dptk/ddp.hpp>

void train(dptk::ProcessGroup& group, Eigen::MatrixXf& weight, Eigen::MatrixXf& gradient) {
#ifdef MISTAKE
    dptk::DistributedDataParallel ddp(group, weight, 2.0F * gradient);
#else
    dptk::DistributedDataParallel ddp(group, weight, gradient.topRows(2));
#endif
}
