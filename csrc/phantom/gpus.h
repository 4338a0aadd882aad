/* The table of GPUs, and the limits of their compute capabilities.
 *
 * Owns the figures and their sources.  device.c makes from the rows the table for
 * CUDA's calls.  It also makes a text inside the library, which `memlab phantom --list`
 * reads without loading it.
 *
 * Columns: name, the driver's name, capability, multiprocessors, memory bus in bits,
 * clock and memory clock in MHz, L2 cache in KiB, memory in MiB by cudaMemGetInfo, and
 * the source of that figure.  Memory is less than in nvidia-smi, by the driver's share
 * and, with ECC, by its codes; another driver may differ by 1 %.  Published means in a
 * user's log.  The other columns are from NVIDIA's data sheets and architecture white
 * papers. */
#ifndef ML_PHANTOM_GPUS_H
#define ML_PHANTOM_GPUS_H

#define ML_PHANTOM_GPUS(XX) \
    XX("b300", "NVIDIA B300 SXM6 AC", 10, 3, 148, 7680, 2032, 3996, 129536, 274113, \
       "cudaGetDeviceProperties as published: 274113 MiB; torch's message: 267.69 " \
       "GiB") \
    XX("b200", "NVIDIA B200", 10, 0, 148, 7680, 1965, 3996, 129536, 182642, \
       "torch's device properties as published: 182642MB; another's: 182631MB") \
    XX("h200", "NVIDIA H200", 9, 0, 132, 6144, 1980, 3201, 61440, 143155, \
       "measured on an H200: torch's device properties say 143155MB") \
    XX("gh200", "NVIDIA GH200 480GB", 9, 0, 132, 6144, 1980, 2619, 61440, 97280, \
       "deviceQuery as published: 97280 MiB; of the GPU alone, 96 GB on the label") \
    XX("h20", "NVIDIA H20", 9, 0, 78, 6144, 1980, 2619, 61440, 97285, \
       "torch's device properties as published: 97285MB") \
    XX("h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 5120, 1980, 2619, 51200, 81090, \
       "torch's device properties as published: 81090MB") \
    XX("a100-80", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 5120, 1410, 1593, 40960, 81152, \
       "torch's out-of-memory message as published: 79.25 GiB") \
    XX("a100-40", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 5120, 1410, 1215, 40960, 40536, \
       "Paddle's documentation of device properties: 40536MB") \
    XX("l40s", "NVIDIA L40S", 8, 9, 142, 384, 2520, 9001, 98304, 45589, \
       "torch's device properties as published: 45589MB") \
    XX("a10g", "NVIDIA A10G", 8, 6, 80, 384, 1710, 6251, 6144, 22587, \
       "torch's device properties as published: 22587MB") \
    XX("l4", "NVIDIA L4", 8, 9, 58, 192, 2040, 6251, 49152, 22563, \
       "llama.cpp's list of devices as published: 22563 MiB; torch's message: 22.03 " \
       "GiB") \
    XX("rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 12, 0, 188, \
       512, 2617, 14001, 131072, 97247, \
       "llama.cpp's list of devices as published: 97247 MiB; torch's message: 94.97 " \
       "GiB; of the Server Edition: 97250 MiB") \
    XX("rtx5090", "NVIDIA GeForce RTX 5090", 12, 0, 170, 512, 2407, 14001, 98304, \
       32120, \
       "deviceQuery as published: 32120 MiB, and 32117; torch's message: 31.37 GiB") \
    XX("rtx4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 384, 2520, 10501, 73728, \
       24207, \
       "TensorRT's device information as published: 24207 MiB; torch's: 23.64 GiB") \
    XX("rtx3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 384, 1695, 9751, 6144, 24259, \
       "torch's device properties as published: 24259MB") \
    XX("t4", "Tesla T4", 7, 5, 40, 256, 1590, 5001, 4096, 14930, \
       "torch's device properties as published: 14930MB") \
    XX("v100", "Tesla V100-SXM2-16GB", 7, 0, 80, 4096, 1530, 877, 6144, 16160, \
       "torch's device properties as published: 16160MB")

/* From the CUDA C++ Programming Guide, "Technical Specifications per Compute
 * Capability": threads and blocks per multiprocessor, and shared memory in KiB: per
 * multiprocessor, per block (opt-in), and reserved per block. */
#define ML_PHANTOM_CAPABILITIES(XX) \
    XX(7, 0, 2048, 32, 96, 96, 0) \
    XX(7, 5, 1024, 16, 64, 64, 0) \
    XX(8, 0, 2048, 32, 164, 163, 1) \
    XX(8, 6, 1536, 16, 100, 99, 1) \
    XX(8, 9, 1536, 24, 100, 99, 1) \
    XX(9, 0, 2048, 32, 228, 227, 1) \
    XX(10, 0, 2048, 32, 228, 227, 1) \
    XX(10, 3, 2048, 32, 228, 227, 1) \
    XX(12, 0, 1536, 24, 100, 99, 1)

#endif
