"""Random crops and flips of uint8 batches, drawn for each image, and the statistics that normalise them."""

import torch
import torch.nn.functional as F
from torch import Tensor


def augment(images: Tensor, crop: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Random horizontal flips, then random crops of the zero-padded images, drawn for each image; dtype unchanged."""
    count, channels, height, width = images.shape
    if flip:
        mirrored = torch.rand(count, generator=generator).to(images.device) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    if crop:
        offsets = torch.randint(0, 2 * crop + 1, (2, count, 1), generator=generator).to(images.device)
        # (N, H) rows and (N, W) columns of the padded images; one indexing takes all windows at once
        rows = offsets[0] + torch.arange(height, device=images.device)
        columns = offsets[1] + torch.arange(width, device=images.device)
        which = torch.arange(count, device=images.device)[:, None, None, None]
        channel = torch.arange(channels, device=images.device)[None, :, None, None]
        images = F.pad(images, (crop,) * 4)[which, channel, rows[:, None, :, None], columns[:, None, None, :]]
    return images


def channel_statistics(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel of uint8 images (N, C, H, W), in [0, 1].

    >>> channel_statistics(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1))
    ([0.5], [0.5])
    """
    # a histogram of 256 values in float64: exact, and no float copy of all images
    counts = torch.stack([torch.bincount(channel.reshape(-1), minlength=256) for channel in images.transpose(0, 1)])
    values = torch.arange(256, dtype=torch.float64) / 255
    share = counts / counts.sum(1, keepdim=True, dtype=torch.float64)
    mean = share @ values
    variance = share @ values.square() - mean.square()
    # the lower bound, for a constant channel would divide by 0
    return mean.tolist(), variance.clamp_min(1e-8).sqrt().tolist()
