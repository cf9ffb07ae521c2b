// Writes the table that tests compare with: each schedule from stdin and its next five times, as in Karpenter.
//
//	cut -f1 tests/unit/apis/cron_schedules.tsv | go run -C tools/cron_table . > table.tsv
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	begin := time.Date(2026, 2, 27, 22, 58, 30, 0, time.UTC)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		schedule, err := cron.ParseStandard("TZ=UTC " + lines.Text())
		if err != nil {
			fmt.Printf("%s\tinvalid\n", lines.Text())
			continue
		}
		var times []string
		for at, i := begin, 0; i < 5; i++ {
			at = schedule.Next(at)
			if at.IsZero() {
				break
			}
			times = append(times, at.Format("2006-01-02T15:04"))
		}
		fmt.Printf("%s\t%s\n", lines.Text(), strings.Join(times, " "))
	}
}
